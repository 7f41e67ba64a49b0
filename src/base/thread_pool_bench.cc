// What a team of threads keeps of its speed beside other programs.
//
// The work is that of decoding: steps of 300 jobs, each reading 0.2 to 3 MB of weights once, with 2 us between jobs and
// 0.1 ms between steps in which the caller computes alone. It runs on an idle machine, beside one busy loop per CPU in
// a session of its own (setsid: with autogroups the kernel gives every session the same share), and beside busy loops
// of this session at nice 19. The reference is independent threads that do the same work without ever waiting for each
// other: what the scheduler leaves a program. `kept` is the team's share of its idle speed over the reference's.
//
// usage: nunspark_pool_bench [SECONDS of one run, 1] [ROUNDS, 3] [GROUPS]
// GROUPS is a folder of the cpu controller whose subfolders `ours`, `other1`, `other2`.. take the place of sessions.
// On a machine that others use, give that folder the highest weight.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cpu_count.h"
#include "base/mapped_memory.h"
#include "base/spin.h"
#include "base/thread_pool.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMemoryBytes = int64_t{512} << 20;
constexpr int64_t kItemBytes = 4096;
constexpr int kJobsOfStep = 300;
constexpr std::array<int64_t, 6> kJobItems = {48, 96, 720, 288, 480, 180};
constexpr auto kBetweenJobs = std::chrono::microseconds(2);
constexpr auto kBetweenSteps = std::chrono::microseconds(100);

struct Settings {
  double seconds = 1;
  int rounds = 3;
  std::string groups;
};

void JoinGroup(const std::string& folder) {
  ::mkdir(folder.c_str(), 0755);
  std::ofstream(folder + "/cgroup.procs") << ::getpid() << std::flush;
}

enum class Others { kNone, kSessions, kNice };

// One busy loop per CPU while it lives.
class BusyLoops {
 public:
  BusyLoops(Others kind, int count, const std::string& groups) {
    for (int i = 0; kind != Others::kNone && i < count; ++i) {
      const pid_t child = ::fork();
      CHECK(child >= 0);
      if (child == 0) Loop(kind, groups.empty() ? "" : fmt::format("{}/other{}", groups, i + 1));
      children_.push_back(child);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  BusyLoops(const BusyLoops&) = delete;
  BusyLoops& operator=(const BusyLoops&) = delete;
  ~BusyLoops() {
    for (const pid_t child : children_) {
      (void)::kill(child, SIGKILL);
      (void)::waitpid(child, nullptr, 0);
    }
  }

 private:
  [[noreturn]] static void Loop(Others kind, const std::string& group) {
    if (kind == Others::kNice) CHECK(::nice(19) >= -1);
    if (kind == Others::kSessions) {
      (void)::setsid();
      if (!group.empty()) JoinGroup(group);
    }
    volatile uint64_t count = 0;
    while (true) count = count + 1;
  }

  std::vector<pid_t> children_;
};

class Work {
 public:
  explicit Work(int threads) : threads_(threads) {
    memory_ = MappedMemory::Create(kMemoryBytes, "the benchmark", "").value();
    for (int64_t at = 0; at < kMemoryBytes; at += kItemBytes) memory_.data()[at] = 1;
  }

  // GB/s of a team.
  double Team(double seconds) {
    const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(threads_).value();
    Cursor cursor{.end = kMemoryBytes / kItemBytes};
    return Measure(seconds, [&](int64_t items) {
      const int64_t first = cursor.Take(items);
      pool->ParallelFor(items, 1, [&](int64_t begin, int64_t end, int) { Read(first + begin, first + end); });
    });
  }

  // GB/s of threads that have a share of every job each.
  double Independent(double seconds) {
    std::vector<double> rates(static_cast<size_t>(threads_));
    std::vector<std::thread> threads;
    for (int t = 0; t < threads_; ++t) {
      threads.emplace_back([&, t] {
        const int64_t part = kMemoryBytes / kItemBytes / threads_;
        Cursor cursor{.begin = t * part, .end = (t + 1) * part, .next = t * part};
        rates[static_cast<size_t>(t)] = Measure(seconds, [&](int64_t items) {
          const int64_t share = std::max<int64_t>(items / threads_, 1);
          const int64_t first = cursor.Take(share);
          Read(first, first + share);
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    double sum = 0;
    for (const double rate : rates) sum += rate / threads_;
    return sum;
  }

 private:
  struct Cursor {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t next = 0;
    int64_t Take(int64_t items) {
      if (next + items > end) next = begin;
      return std::exchange(next, next + items);
    }
  };

  void Read(int64_t first, int64_t last) const {
    uint64_t sums[16] = {};
    const auto* const words = reinterpret_cast<const uint64_t*>(memory_.data());
    for (int64_t at = first * kItemBytes / 8; at < last * kItemBytes / 8; at += 16) {
      for (int i = 0; i < 16; ++i) sums[i] += words[at + i];
    }
    volatile uint64_t sink = 0;
    for (const uint64_t sum : sums) sink = sink + sum;
  }

  static void ComputeAlone(Clock::duration time) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) SpinPause();
  }

  template <typename RunJob>
  static double Measure(double seconds, const RunJob& run_job) {
    const auto begin = Clock::now();
    double passed = 0;
    int64_t items = 0;
    while (passed < seconds) {
      for (int job = 0; job < kJobsOfStep; ++job) {
        const int64_t of_job = kJobItems[static_cast<size_t>(job) % kJobItems.size()];
        run_job(of_job);
        items += of_job;
        ComputeAlone(kBetweenJobs);
      }
      ComputeAlone(kBetweenSteps);
      passed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    return static_cast<double>(items * kItemBytes) / passed / 1e9;
  }

  const int threads_;
  MappedMemory memory_;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median time of a job whose shares take 5 us, less those 5 us.
double OverheadNs(int threads) {
  constexpr auto kShare = std::chrono::microseconds(5);
  const std::unique_ptr<ThreadPool> pool = ThreadPool::Create(threads).value();
  std::vector<double> times;
  for (int i = 0; i < 20'000; ++i) {
    const auto begin = Clock::now();
    pool->ParallelFor(threads, 1, [&](int64_t first, int64_t last, int) {
      for (; first < last; ++first) {
        for (const auto end = Clock::now() + kShare; Clock::now() < end;) {
        }
      }
    });
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin - kShare).count());
  }
  return Median(times);
}

void Print(std::string_view name, double value, std::string_view unit) {
  fmt::print("{}\t{:.4g}\t{}\n", name, value, unit);
}

void Run(const Settings& settings) {
  if (!settings.groups.empty()) JoinGroup(settings.groups + "/ours");
  const int threads = DefaultThreads();
  Work work(threads);
  const std::array<std::pair<Others, std::string_view>, 3> cases = {
      {{Others::kNone, "idle"}, {Others::kSessions, "beside sessions"}, {Others::kNice, "beside nice 19"}}};
  std::map<Others, std::vector<double>> team, independent;
  for (int round = 0; round < settings.rounds; ++round) {
    for (const auto& [others, name] : cases) {
      const BusyLoops loops(others, threads, settings.groups);
      independent[others].push_back(work.Independent(settings.seconds));
      team[others].push_back(work.Team(settings.seconds));
    }
  }
  const double idle_team = Median(team[Others::kNone]), idle_independent = Median(independent[Others::kNone]);
  for (const auto& [others, name] : cases) {
    const double of_team = Median(team[others]), of_independent = Median(independent[others]);
    Print(fmt::format("{}: independent threads", name), of_independent, "GB/s");
    Print(fmt::format("{}: team", name), of_team, "GB/s");
    if (others == Others::kNone) continue;
    const double share = of_team / idle_team, reference = of_independent / idle_independent;
    fmt::print(stderr, "{}: of idle, the team has {:.0f} %, independent threads {:.0f} %; kept {:.0f} %\n", name,
               100 * share, 100 * reference, 100 * share / reference);
  }
  Print("overhead of a job", OverheadNs(threads), "ns");
}

}  // namespace
}  // namespace nunspark

int main(int argc, char** argv) {
  nunspark::Settings settings;
  if (argc > 1) settings.seconds = std::atof(argv[1]);
  if (argc > 2) settings.rounds = std::max(1, std::atoi(argv[2]));
  if (argc > 3) settings.groups = argv[3];
  nunspark::Run(settings);
  return 0;
}
