#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <system_error>

#include <fmt/format.h>

#include "base/check.h"
#include "base/cpu_count.h"
#include "base/spin.h"
#include "base/thread_signals.h"

namespace nunspark {
namespace {

// Longer than the pauses between the jobs of a step.
constexpr int64_t kSpinNs = 100'000;

// How long a worker waits for the end of a job before it looks whether the caller can run at all.
constexpr int64_t kPatienceNs = 25'000;

// Ranges of a share where members of the team differ in speed.
constexpr int64_t kRangesOfUnequals = 4;

constexpr pid_t kBeingMoved = -1;

constexpr int64_t kMaxUnits = int64_t{1} << 31;
// Not std::atomic's wait and notify: those of GCC 12 yield the CPU a few times first, which helps nobody here.
void SleepWhile(const std::atomic<uint32_t>& value, uint32_t expected) {
  ::syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void Wake(const std::atomic<uint32_t>& value) {
  ::syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

uint64_t MakeTicket(uint32_t job, uint32_t units) { return uint64_t{job} << 32 | units; }
uint32_t JobOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t UnitsOf(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

// Of a thread of this process. Kernel ABI: the number's complement, then "per thread" and "as the scheduler counts it".
clockid_t CpuClockOf(pid_t thread) { return static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3 | 6u); }

// Whether a thread that does not sleep gets no CPU at the moment.
bool IsKeptFromRunning(pid_t thread) {
  const int64_t before = ReadClockNs(CpuClockOf(thread));
  for (int i = 0; i < 64; ++i) SpinPause();
  return ReadClockNs(CpuClockOf(thread)) == before;
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads) {
  CHECK(threads >= 1);
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  const std::vector<int> allowed = AllowedCpus();
  std::vector<int> own = ComputeCpus(allowed);
  // A spinning thread that shares its CPU with the one it waits for only delays it, and under a quota it uses up what
  // the others need.
  const double at_once = std::min(static_cast<double>(allowed.size()), QuotaCpus());
  pool->spin_ns_ = threads <= at_once ? kSpinNs : 0;
  pool->ranges_each_ = threads > static_cast<int>(own.size()) ? kRangesOfUnequals : 1;
  // With fewer threads than CPUs a second process would choose the same ones.
  pool->bound_ = threads == static_cast<int>(own.size());
  for (const int cpu : allowed) pool->allowed_.Add(cpu);
  // The caller runs somewhere too: most likely where it is now.
  const auto callers = std::find(own.begin(), own.end(), ::sched_getcpu());
  if (callers != own.end()) std::iter_swap(own.begin(), callers);
  // Signals are for the threads that know what they interrupt.
  const BlockedSignals blocked;
  for (int thread = 1; thread < threads; ++thread) {
    const int cpu = pool->bound_ ? own[static_cast<size_t>(thread)] : -1;
    try {
      pool->workers_.emplace_back([raw = pool.get(), thread, cpu] {
        // A refusal does not matter: threads are bound for speed.
        if (cpu >= 0) (void)CpuMask(cpu).ApplyTo(0);
        raw->WorkerLoop(thread);
      });
    } catch (const std::system_error& error) {
      return ResourceExhaustedError(fmt::format("the system refuses compute thread {} of {}: {}; use fewer --threads",
                                                thread + 1, threads, error.code().message()));
    }
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  Publish(0);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, int64_t grain, Invoke invoke, const void* context) {
  grain = std::max<int64_t>(grain, 1);
  grain *= (count - 1) / grain / kMaxUnits + 1;
  const uint32_t units = static_cast<uint32_t>((count - 1) / grain + 1);
  const uint32_t ranges = static_cast<uint32_t>(threads() * ranges_each_);
  count_.store(count, std::memory_order_relaxed);
  grain_.store(grain, std::memory_order_relaxed);
  units_.store(units, std::memory_order_relaxed);
  range_.store(units / ranges + (units % ranges != 0 ? 1 : 0), std::memory_order_relaxed);
  invoke_.store(invoke, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  unfinished_.store(units, std::memory_order_relaxed);
  static thread_local const pid_t kThisThread = static_cast<pid_t>(::syscall(SYS_gettid));
  caller_cpu_.store(::sched_getcpu(), std::memory_order_relaxed);
  caller_.store(kThisThread, std::memory_order_relaxed);
  Publish(units);
  const uint32_t done = RunRanges(0);
  if (unfinished_.fetch_sub(done, std::memory_order_acq_rel) != done) AwaitRest();
  StopBeingHelped();
}

// Either a worker that is about to sleep sees the new job, or this sees that it is about to: both first write, then
// look, in one order for all.
void ThreadPool::Publish(uint32_t units) {
  const uint32_t job = JobOf(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(MakeTicket(job, units), std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
  sleeping_.store(0, std::memory_order_seq_cst);
  gate_.fetch_add(1, std::memory_order_seq_cst);
  Wake(gate_);
}

// Takes ranges of the present job until none is left. Returns how many units they had.
uint32_t ThreadPool::RunRanges(int thread) {
  uint32_t done = 0;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (UnitsOf(ticket) != 0) {
    const uint32_t left = UnitsOf(ticket);
    const uint32_t take = std::min(left, range_.load(std::memory_order_relaxed));
    const int64_t grain = grain_.load(std::memory_order_relaxed);
    const int64_t count = count_.load(std::memory_order_relaxed);
    const int64_t first = int64_t{units_.load(std::memory_order_relaxed)} - left;
    const Invoke invoke = invoke_.load(std::memory_order_relaxed);
    const void* const context = context_.load(std::memory_order_relaxed);
    // Success means that the job was this one all the time, for its caller waits for every unit that is not taken.
    if (!ticket_.compare_exchange_weak(ticket, ticket - take, std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    invoke(context, first * grain, std::min(count, (first + take) * grain), thread);
    done += take;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return done;
}

void ThreadPool::AwaitRest() {
  const auto finished = [this] { return unfinished_.load(std::memory_order_seq_cst) == 0; };
  if (SpinUntil(spin_ns_, finished)) return;
  StopBeingHelped();  // a caller that sleeps is not kept from running
  while (true) {
    caller_sleeping_.store(1, std::memory_order_seq_cst);
    if (finished()) break;
    SleepWhile(caller_sleeping_, 1);
  }
  caller_sleeping_.store(0, std::memory_order_relaxed);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitJob(seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    const uint32_t done = RunRanges(thread);
    if (done == 0 || unfinished_.fetch_sub(done, std::memory_order_seq_cst) != done) continue;
    // The caller sleeps, or it is about to and then looks once more. Late news wake it in vain in a later job.
    if (caller_sleeping_.exchange(0, std::memory_order_seq_cst) != 0) Wake(caller_sleeping_);
  }
}

// Returns the number of a job other than `seen`.
uint32_t ThreadPool::AwaitJob(uint32_t seen) {
  const auto job = [this] { return JobOf(ticket_.load(std::memory_order_seq_cst)); };
  for (int64_t spun_ns = 0; spun_ns < (spin_ns_ > 0 && !shared_cores.Seen() ? kSpinAloneNs : spin_ns_);
       spun_ns += kPatienceNs) {
    if (SpinUntil(kPatienceNs, [&] { return job() != seen; })) return job();
    HelpCaller();
  }
  while (true) {
    const uint32_t gate = gate_.load(std::memory_order_seq_cst);
    sleeping_.store(1, std::memory_order_seq_cst);
    if (job() != seen) return job();
    SleepWhile(gate_, gate);
  }
}

// Gives up this worker's CPU to a caller that is in the middle of its range while somebody else has its CPU: they
// change places. Nothing can go on before the caller does, whereas a worker is not waited for.
void ThreadPool::HelpCaller() {
  pid_t caller = caller_.load(std::memory_order_relaxed);
  if (caller <= 0 || !IsKeptFromRunning(caller)) return;
  // One of all workers, and the job does not end before the caller has its own mask back.
  if (!caller_.compare_exchange_strong(caller, kBeingMoved, std::memory_order_acquire)) return;
  const int here = ::sched_getcpu(), there = caller_cpu_.load(std::memory_order_relaxed);
  CpuMask callers;
  bool moved = false;
  if (here != there && there >= 0 && callers.ReadFrom(caller) && callers.Has(here)) {
    moved = CpuMask(here).ApplyTo(caller);
    if (moved) (void)callers.ApplyTo(caller);
  }
  caller_.store(0, std::memory_order_release);
  if (!moved) return;
  (void)CpuMask(there).ApplyTo(0);
  if (!bound_) (void)allowed_.ApplyTo(0);
}

void ThreadPool::StopBeingHelped() {
  pid_t caller = caller_.load(std::memory_order_relaxed);
  while (caller != 0) {
    if (caller == kBeingMoved) {
      ::sched_yield();  // perhaps to the very thread
      caller = caller_.load(std::memory_order_acquire);
    } else if (caller_.compare_exchange_weak(caller, 0, std::memory_order_acquire)) {
      return;
    }
  }
}

}  // namespace nunspark
