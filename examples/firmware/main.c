/* Run a compiled model on every sample, print its answers, and compare them with the expected ones. */
#include "board.h"
#include "golden.h" /* types, samples and expected answers, written by firmware.py */
#include "model.h"  /* written by odc-compile */

#define SHOWN 12 /* elements of an answer that are printed */
#define PAINT 0xA5

#define BUFFER(name) __attribute__((section(name), aligned(MODEL_ALIGNMENT))) static

/* Buffers hold MODEL_..._BYTES bytes, which is more than their elements. */
BUFFER(".arena") unsigned char arena[MODEL_ARENA_BYTES];
BUFFER(".bss.input") union { input_t elements[MODEL_INPUT0_ELEMENTS]; unsigned char bytes[MODEL_INPUT0_BYTES]; } input;
BUFFER(".bss.output") union { output_t elements[MODEL_OUTPUT0_ELEMENTS]; unsigned char bytes[MODEL_OUTPUT0_BYTES]; } output;

static void print_number(uint64_t value, int digits) {
  char text[21];
  int at = 20;
  text[at] = 0;
  do {
    text[--at] = (char)('0' + (int)(value % 10));
    value /= 10;
  } while (value != 0 || 20 - at < digits);
  console_write(text + at);
}

static void print_field(const char *name, uint64_t value) {
  console_write(name);
  print_number(value, 1);
}

#if ANSWERS_ARE_REAL
static void print_answer(output_t value) {
  const uint64_t millionths = (uint64_t)((value < 0 ? -value : value) * 1e6f + 0.5f);
  console_write(value < 0 ? " -" : " ");
  print_number(millionths / 1000000, 1);
  console_write(".");
  print_number(millionths % 1000000, 6);
}

static int differs(output_t found, output_t expected) {
  const float limit = TOLERANCE * (1 + (expected < 0 ? -expected : expected));
  return !(found - expected <= limit && expected - found <= limit); /* a NaN differs */
}
#else
static void print_answer(output_t value) {
  console_write(value < 0 ? " -" : " ");
  print_number(value < 0 ? -(uint64_t)value : (uint64_t)value, 1);
}

static int differs(output_t found, output_t expected) { return found != expected; }
#endif

/* Fill the unused part of the stack with a pattern, to see later how much of it was used. */
__attribute__((noinline)) static void paint_stack(void) {
  unsigned char *const end = (unsigned char *)__builtin_frame_address(0) - 64;
  for (volatile unsigned char *at = stack_bottom; at < end; at++) *at = PAINT;
}

static uint64_t used_stack(void) {
  const unsigned char *at = stack_bottom;
  while (at < stack_top && *at == PAINT) at++;
  return (uint64_t)(stack_top - at);
}

int main(void) {
  uint32_t wrong = 0;
  counter_start();
  for (int sample = 0; sample < SAMPLES; sample++) {
    for (int i = 0; i < MODEL_INPUT0_ELEMENTS; i++) input.elements[i] = samples[sample][i];
    paint_stack();
    const uint64_t begun = counter_read();
    const int32_t status = model_run(input.elements, output.elements, arena);
    const uint64_t ended = counter_read();
    const uint64_t stack = used_stack();
    uint32_t differing = status == 0 ? 0 : MODEL_OUTPUT0_ELEMENTS;
    for (int i = 0; i < MODEL_OUTPUT0_ELEMENTS && status == 0; i++)
      differing += (uint32_t)differs(output.elements[i], expected[sample][i]);
    wrong += differing;

    print_field("sample ", (uint64_t)sample);
    print_field(" counted ", ended - begun);
    print_field(" stack ", stack);
    print_field(" differing ", differing);
    print_field(" of ", MODEL_OUTPUT0_ELEMENTS);
    console_write(" answer");
    for (int i = 0; i < MODEL_OUTPUT0_ELEMENTS && i < SHOWN; i++) print_answer(output.elements[i]);
    console_write(MODEL_OUTPUT0_ELEMENTS > SHOWN ? " ...\n" : "\n");
  }
  return wrong == 0 ? 0 : 1;
}
