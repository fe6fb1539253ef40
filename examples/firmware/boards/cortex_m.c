/* Startup of a Cortex-M: vectors, coprocessors, and SysTick as the counter. */
#include "board.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88)
#define SYSTICK_CONTROL (*(volatile uint32_t *)0xE000E010)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xE000E014)
#define SYSTICK_VALUE (*(volatile uint32_t *)0xE000E018)
#define SYSTICK_SPAN 0x1000000u /* it counts down 24 bits */

static volatile uint32_t systick_wraps;

long semihosting(long operation, const void *parameter) {
  register long first __asm__("r0") = operation;
  register const void *second __asm__("r1") = parameter;
  __asm__ volatile("bkpt 0xab" : "+r"(first) : "r"(second) : "memory");
  return first;
}

void counter_start(void) {
  SYSTICK_RELOAD = SYSTICK_SPAN - 1;
  SYSTICK_VALUE = 0;
  SYSTICK_CONTROL = 7; /* processor clock, interrupt, on */
}

uint64_t counter_read(void) {
  uint32_t wraps, value;
  do {
    wraps = systick_wraps;
    value = SYSTICK_VALUE;
  } while (wraps != systick_wraps);
  return (uint64_t)wraps * SYSTICK_SPAN + (SYSTICK_SPAN - 1 - value);
}

static void on_systick(void) { systick_wraps++; }

/* Compilers may use floating-point registers anywhere, so they are enabled before any other function runs. */
void on_reset(void) {
  CPACR |= 0xFu << 20; /* CP10 and CP11: floating point and MVE */
  __asm__ volatile("dsb\n isb" ::: "memory");
  run_program();
}

struct vectors {
  void *stack;
  void (*handlers[15])(void);
};

__attribute__((section(".vectors"), used)) static const struct vectors vectors = {
    stack_top,
    {on_reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, on_systick},
};
