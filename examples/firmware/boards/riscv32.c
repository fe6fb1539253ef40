/* Startup of a 32-bit RISC-V core in machine mode, with mcycle as the counter. */
#include "board.h"

/* GCC has no libraries for rv32imac_zicsr, so the assembler gets the extension here. */
__asm__(".option arch, +zicsr");

/* The debugger recognises an ebreak between two shifts of x0, none of them compressed, on one page. */
__attribute__((naked, noinline, aligned(16))) long semihosting(long operation, const void *parameter) {
  (void)operation;
  (void)parameter;
  __asm__ volatile(
      ".option push\n .option norvc\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n ret\n .option pop");
}

void counter_start(void) {}

uint64_t counter_read(void) {
  uint32_t high, low, again;
  do {
    __asm__ volatile("csrr %0, mcycleh\n csrr %1, mcycle\n csrr %2, mcycleh" : "=r"(high), "=r"(low), "=r"(again));
  } while (high != again);
  return (uint64_t)high << 32 | low;
}

__attribute__((used)) static void start(void) { run_program(); }
__attribute__((used, aligned(4))) static void trap(void) { fault(); }

/* Floating point is enabled in mstatus; a core without it ignores that. */
__attribute__((naked, used, section(".vectors"))) void on_reset(void) {
  __asm__ volatile("la sp, stack_top\n la t0, trap\n csrw mtvec, t0\n li t0, 0x6000\n csrs mstatus, t0\n j start");
}
