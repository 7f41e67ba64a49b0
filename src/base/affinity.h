// On which CPUs a thread may run.
#ifndef NUNSPARK_BASE_AFFINITY_H_
#define NUNSPARK_BASE_AFFINITY_H_

#include <sched.h>
#include <sys/types.h>

namespace nunspark {

// A set of CPUs, of machines with up to kMaxCpus.
class CpuMask {
 public:
  static constexpr int kMaxCpus = 8192;

  CpuMask() { CPU_ZERO_S(sizeof words_, set()); }
  explicit CpuMask(int cpu) : CpuMask() { Add(cpu); }
  void Add(int cpu) { CPU_SET_S(static_cast<size_t>(cpu), sizeof words_, set()); }
  bool Has(int cpu) const { return cpu >= 0 && CPU_ISSET_S(static_cast<size_t>(cpu), sizeof words_, set()); }

  // The mask of a thread of this process, 0 meaning the calling one. False when the system refuses.
  bool ReadFrom(pid_t thread) { return ::sched_getaffinity(thread, sizeof words_, set()) == 0; }
  bool ApplyTo(pid_t thread) const { return ::sched_setaffinity(thread, sizeof words_, set()) == 0; }

 private:
  cpu_set_t* set() { return reinterpret_cast<cpu_set_t*>(words_); }
  const cpu_set_t* set() const { return reinterpret_cast<const cpu_set_t*>(words_); }

  alignas(cpu_set_t) unsigned char words_[kMaxCpus / 8];
};

}  // namespace nunspark

#endif  // NUNSPARK_BASE_AFFINITY_H_
