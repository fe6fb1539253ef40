/* What a board offers to main.c: a console, a counter and an end, by semihosting. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* From the linker script. */
extern unsigned char stack_bottom[], stack_top[], data_start[], data_end[], data_load[], bss_start[], bss_end[];

/* Call semihosting operation number `operation`; the debugger or emulator handles it. */
long semihosting(long operation, const void *parameter);

/* Start the counter, and read it: SysTick on Cortex-M, mcycle on RISC-V. */
void counter_start(void);
uint64_t counter_read(void);

static inline void console_write(const char *text) { semihosting(0x04, text); }

/* End the emulation with an exit status. */
static inline void leave(int status) {
  const long block[2] = {0x20026, status}; /* application exit */
  semihosting(0x20, block);
  for (;;) {
  }
}

int main(void);

/* Initialise memory and run the program; the board's reset code has set the stack. */
static inline void run_program(void) {
  const unsigned char *from = data_load;
  for (unsigned char *to = data_start; to < data_end; to++) *to = *from++;
  for (unsigned char *to = bss_start; to < bss_end; to++) *to = 0;
  leave(main());
}

static inline void fault(void) {
  console_write("fault\n");
  leave(3);
}

#endif
