#include "cli/doctor_checks.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "base/cpu_count.h"
#include "base/mapped_memory.h"
#include "base/memory_info.h"
#include "base/memory_reservation.h"
#include "base/size.h"
#include "kernels/kernels.h"

namespace nunspark::cli {
namespace {

constexpr const char* kNothing = "nothing to do";

// Below this a model streams at a few tokens a second at best.
constexpr double kSlowDrive = 300e6;

// Within so many degrees of its limit a part is about to be slowed.
constexpr double kHotMargin = 10;

Finding Good(std::string topic, std::string text) {
  return {.level = Level::kGood, .topic = std::move(topic), .text = std::move(text), .remedy = kNothing};
}

std::string RateText(double bytes_per_second) { return FormatSize(static_cast<int64_t>(bytes_per_second)) + "/s"; }

std::string KibText(int64_t bytes) { return fmt::format("{} KiB", bytes >> 10); }

Finding CheckMemory(const std::string& root) {
  const MachineMemory machine = ReadMachineMemory(root);
  const OutstandingMemory others = ReadOutstandingMemory();
  std::string text =
      fmt::format("{} of memory, {} available", FormatSize(machine.total_bytes), FormatSize(machine.available_bytes));
  if (others.bytes > 0) text += fmt::format(", of which other engines will take {}", FormatSize(others.bytes));
  if (machine.available_bytes < machine.total_bytes / 4) {
    return {.level = Level::kHint, .topic = "memory", .text = text, .remedy = "end programs that hold memory"};
  }
  return Good("memory", text);
}

Finding CheckGroup(const std::string& root) {
  const CgroupMemory group = ReadCgroupMemory(ReadProcessMemory(root).anonymous_bytes, root);
  if (group.limit_bytes == 0) return Good("group limit", "no memory limit of a control group");
  return {.level = Level::kHint,
          .topic = "group limit",
          .text = fmt::format("a control group limits memory to {}, others in it leave {}",
                              FormatSize(group.limit_bytes), FormatSize(group.share_bytes)),
          .remedy = "raise memory.max (containers: --memory) for larger budgets; plans stay below it"};
}

Finding CheckAddressSpace() {
  const int64_t limit = AddressSpaceLimit();
  if (limit == 0) return Good("address space", "not limited");
  return {.level = Level::kHint,
          .topic = "address space",
          .text = fmt::format("limited to {}", FormatSize(limit)),
          .remedy = "ulimit -v unlimited; plans stay below it"};
}

Finding CheckOvercommit(const std::string& root) {
  if (OvercommitMode(root) != 2) return Good("overcommit", "memory can be reserved before it is used");
  return {.level = Level::kWarning,
          .topic = "overcommit",
          .text = "vm.overcommit_memory is 2: the system counts what is reserved, not what is used",
          .remedy = "sysctl vm.overcommit_memory=0, or a smaller --budget where memory is refused"};
}

Finding CheckKernels() {
  const Status choice = CheckKernelChoice();
  if (!choice.ok()) {
    return {.level = Level::kProblem, .topic = "processor", .text = choice.message(), .remedy = "unset NUNSPARK_ISA"};
  }
  std::string names;
  for (const KernelTable* table : AvailableKernels()) names += (names.empty() ? "" : ", ") + std::string(table->name);
  const std::string text = fmt::format("kernels {} (this processor has: {})", Kernels().name, names);
  const char* const forced = std::getenv("NUNSPARK_ISA");
  if (forced != nullptr && *forced != '\0' && Kernels().name != AvailableKernels().front()->name) {
    return {.level = Level::kWarning, .topic = "processor", .text = text, .remedy = "unset NUNSPARK_ISA"};
  }
  if (std::string_view(Kernels().name) == "scalar") {
    return {.level = Level::kWarning,
            .topic = "processor",
            .text = text,
            .remedy = "a processor with AVX2 or NEON computes many times faster; virtual machines may hide it"};
  }
  if (!KernelTrouble().empty()) {
    return {.level = Level::kHint,
            .topic = "processor",
            .text = text + "; " + KernelTrouble(),
            .remedy =
                "prompts would be computed faster with it: Linux 5.16 or newer, in virtual machines a host that has "
                "it; where other products are reported, please tell us"};
  }
  return Good("processor", text);
}

Finding CheckCpus(const std::string& root) {
  const std::vector<int> allowed = AllowedCpus();
  const double quota = QuotaCpus(root);
  const int threads = DefaultThreads(allowed, root);
  const std::string text = fmt::format("{} compute thread{} on {} CPU{}", threads, threads == 1 ? "" : "s",
                                       allowed.size(), allowed.size() == 1 ? "" : "s");
  if (std::isinf(quota) || quota >= static_cast<double>(allowed.size())) return Good("CPUs", text);
  return {.level = Level::kHint,
          .topic = "CPUs",
          .text = fmt::format("{}; a quota pays for {:.2g}", text, quota),
          .remedy = "raise cpu.max (containers: --cpus); more threads than the quota pays for would be stopped"};
}

}  // namespace

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kGood: return "ok";
    case Level::kHint: return "hint";
    case Level::kWarning: return "warning";
    case Level::kProblem: return "problem";
  }
  return "";
}

std::vector<Finding> CheckMachine(const std::string& root) {
  const CpuClock clock = ReadCpuClock(root);
  return {
      CheckKernels(),       CheckCpus(root),           CheckClock(clock),           CheckHeat(ReadHeat(root), clock),
      CheckMemory(root),    CheckGroup(root),          CheckAddressSpace(),         CheckOvercommit(root),
      CheckHugePages(root), CheckSwap(ReadSwap(root)), CheckLocks(ReadLockLimits())};
}

Finding CheckSwap(const SwapInfo& swap) {
  if (swap.total_bytes == 0) return Good("swap", "none: nothing of ours can be swapped out");
  const std::string text = fmt::format("{}, {} in use", FormatSize(swap.total_bytes), FormatSize(swap.used_bytes));
  if (swap.used_bytes > swap.total_bytes / 4) {
    return {.level = Level::kWarning,
            .topic = "swap",
            .text = text,
            .remedy = "the machine is short of memory: end programs, or give a smaller --memory"};
  }
  return Good("swap", text);
}

Finding CheckLocks(const LockLimits& limits) {
  if (limits.soft_bytes < 0) return Good("locked memory", "not limited: weights can be kept from being swapped out");
  return {.level = Level::kHint,
          .topic = "locked memory",
          .text = fmt::format("a process may lock {}: weights beyond it may be swapped out under pressure",
                              FormatSize(limits.soft_bytes)),
          .remedy = limits.hard_bytes < 0
                        ? "ulimit -l unlimited before the start"
                        : "a line '* - memlock unlimited' in /etc/security/limits.conf, or LimitMEMLOCK=infinity of a "
                          "service; not needed without swap"};
}

Finding CheckHugePages(const std::string& root) {
  const std::string refusal = HugePageRefusal(root);
  if (refusal.empty()) return Good("huge pages", fmt::format("given ({})", HugePageMode(root)));
  return {.level = Level::kWarning,
          .topic = "huge pages",
          .text = fmt::format("refused: {}; weights in small pages are read a quarter slower", refusal),
          .remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding CheckClock(const CpuClock& clock) {
  if (clock.highest_khz == 0) return Good("clock", "not told by this machine");
  const std::string text =
      fmt::format("{:.1f} of {:.1f} GHz now, governor {}", static_cast<double>(clock.current_khz) / 1e6,
                  static_cast<double>(clock.highest_khz) / 1e6, clock.governor.empty() ? "unknown" : clock.governor);
  if (clock.governor != "powersave") return Good("clock", text);
  return {
      .level = Level::kHint,
      .topic = "clock",
      .text = text,
      .remedy = "cpupower frequency-set -g performance, where reads often wake the processor from its lowest clock"};
}

Finding CheckHeat(const Heat& heat, const CpuClock& clock) {
  std::string text = heat.now < 0 ? "no sensor" : fmt::format("{:.0f} C", heat.now);
  if (heat.limit > 0) text += fmt::format(", slowed from {:.0f} C", heat.limit);
  if (clock.throttled > 0) text += fmt::format("; slowed by heat {} times since the start", clock.throttled);
  if (heat.limit > 0 && heat.now > heat.limit - kHotMargin) {
    return {.level = Level::kWarning, .topic = "heat", .text = text, .remedy = "cool it, or use fewer --threads"};
  }
  if (clock.throttled > 0) {
    return {.level = Level::kHint, .topic = "heat", .text = text, .remedy = "cool it when long runs become slower"};
  }
  return Good("heat", text);
}

Finding CheckFileSystem(const FileSystemInfo& info, const std::string& path) {
  const std::string text = fmt::format("{} is on {}, {} free", path, info.name, FormatSize(info.free_bytes));
  switch (info.kind) {
    case FileSystemKind::kNetwork:
      return {.level = Level::kWarning,
              .topic = "file system",
              .text = text + "; a network is 10 to 100 times slower than a drive",
              .remedy = "copy the model to a drive of this machine"};
    case FileSystemKind::kMemory:
      return {.level = Level::kWarning,
              .topic = "file system",
              .text = text + "; it is memory itself: a model there takes the room that its weights need",
              .remedy = "keep the model on a drive"};
    case FileSystemKind::kLocal:
    case FileSystemKind::kOther: break;
  }
  return Good("file system", text);
}

std::vector<Finding> CheckDrive(const DriveSweep& sweep) {
  std::vector<Finding> findings;
  if (sweep.why_not_better.empty()) {
    findings.push_back(Good("reads", sweep.queue));
  } else {
    findings.push_back({.level = Level::kWarning,
                        .topic = "reads",
                        .text = fmt::format("{}: {}", sweep.queue, sweep.why_not_better),
                        .remedy = "sysctl kernel.io_uring_disabled=0 and a container that permits io_uring; for direct "
                                  "reads a file system that has them (ext4, xfs, btrfs)"});
  }
  const std::string text =
      fmt::format("{} scattered, {} in sequence; full rate from {} x {} on", RateText(sweep.fastest.bytes_per_second),
                  RateText(sweep.sequential.bytes_per_second), KibText(sweep.best.request_bytes), sweep.best.depth);
  if (sweep.fastest.bytes_per_second < kSlowDrive) {
    findings.push_back({.level = Level::kWarning,
                        .topic = "drive",
                        .text = text,
                        .remedy = "an NVMe drive reads 10 times as fast; USB cables and old ports halve rates"});
  } else {
    findings.push_back(Good("drive", text));
  }
  return findings;
}

}  // namespace nunspark::cli
