// One turn of a spinning thread.
#ifndef NUNSPARK_BASE_SPIN_H_
#define NUNSPARK_BASE_SPIN_H_

namespace nunspark {

// Tells the processor that this thread waits for another one: about 10-50 ns that leave the core's shared units to its
// other hardware thread.
inline void SpinPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace nunspark

#endif  // NUNSPARK_BASE_SPIN_H_
