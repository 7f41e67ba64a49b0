#include "weights/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/memory_info.h"
#include "base/size.h"
#include "weights/embedding_rows.h"

namespace nunspark {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMiB = int64_t{1} << 20;

// A core that computes and one that arrives.
constexpr int32_t kRingSlots = 2;

// The read queue's own memory: rings, touched stacks of the pread pool, the unaligned end of a file.
constexpr int64_t kReadBufferBytes = 512 << 10;

// Reserve: code and data touched for the first time while running, allocator slack, page tables (8 bytes for each 4 KiB
// page, so half of the share), and the cache's bookkeeping for each piece. docs/measurements/memory-plan.md: the
// process stayed below the planned parts alone, so this is the margin.
constexpr int64_t kReserveBytes = 4 * kMiB;
constexpr int64_t kReserveShare = 256;
constexpr int64_t kReservePerPiece = 256;

// Physical memory that the kernel and everything else keep: below it the system begins to swap.
constexpr int64_t kSystemShare = 32;

// How far below the largest possible budget a suggestion stays.
constexpr int64_t kSuggestionShare = 64;

// What a model asks of the budget.
struct Needs {
  std::string model;
  std::vector<int64_t> core_bytes;  // [layers]
  int64_t all_cores_bytes = 0;
  int64_t core_floor_bytes = 0;  // two slots, or all cores if that is less
  int64_t expert_slot_bytes = 0;
  int32_t experts = 0;             // all layers
  int32_t expert_floor_slots = 0;  // one token's routed set over all layers
  int64_t experts_per_token = 0;
  int64_t moe_layers = 0;

  int64_t floor_bytes() const { return core_floor_bytes + expert_floor_slots * expert_slot_bytes; }
  int64_t full_bytes() const { return all_cores_bytes + experts * expert_slot_bytes; }
};

struct Ceiling {
  int64_t bytes = 0;  // 0 = unknown
  std::string bound;
};

Needs MeasureNeeds(const ModelLayout& layout, const PieceIndex& index);
MemoryPlan PlanOutside(const ModelLayout& layout, const PieceIndex& index, const MemoryRequest& request,
                       const SystemMemory& system);
void PlanInside(const Needs& needs, double expert_fraction, int64_t budget_bytes, MemoryPlan& plan);
void PlaceCores(const Needs& needs, int64_t available_bytes, MemoryPlan& plan);
void AddUp(const ModelLayout& layout, MemoryPlan& plan);
Ceiling FindCeiling(const SystemMemory& system);
Result<Ceiling> LowerTo(int64_t memory_bytes, const Ceiling& ceiling);
int64_t LargestBudget(const Needs& needs, double expert_fraction, const ModelLayout& layout, MemoryPlan plan);
std::string FloorText(const Needs& needs);
std::string SmallestFlag(const Needs& needs, int64_t largest_bytes);
std::string OutsideText(const MemoryPlan& plan);
std::string BoundText(const std::string& bound);

}  // namespace

SystemMemory MeasureSystemMemory(const std::string& reservations) {
  const MachineMemory machine = ReadMachineMemory();
  const ProcessMemory process = ReadProcessMemory();
  const CgroupMemory group = ReadCgroupMemory(process.anonymous_bytes);
  const OutstandingMemory others = ReadOutstandingMemory(reservations);
  const auto less = [](int64_t bytes, int64_t taken) { return bytes == 0 ? 0 : std::max<int64_t>(bytes - taken, 1); };
  return {.physical_bytes = machine.total_bytes,
          .available_bytes = less(machine.available_bytes, others.bytes),
          .cgroup_limit_bytes = group.limit_bytes,
          .cgroup_share_bytes = less(group.share_bytes, others.same_group_bytes),
          .address_space_bytes = AddressSpaceLimit(),
          .process_bytes = process.resident_bytes,
          .process_virtual_bytes = process.virtual_bytes};
}

AutoBudget ComputeAutoBudget(const SystemMemory& system) {
  AutoBudget budget{.bytes = 4'000'000'000, .bound_by = "unknown-ram"};
  if (system.physical_bytes > 0) {
    const int64_t rule = system.physical_bytes / 4 * 3 + system.physical_bytes % 4 * 3 / 4 - 2 * kGiB;
    budget = {.bytes = std::max(rule, 2 * kGiB), .bound_by = "ram"};
  }
  if (system.cgroup_limit_bytes > 0 && system.cgroup_limit_bytes < budget.bytes) {
    budget = {.bytes = system.cgroup_limit_bytes, .bound_by = "cgroup"};
  }
  if (system.available_bytes > 0 && system.available_bytes - kGiB < budget.bytes) {
    budget = {.bytes = std::max<int64_t>(system.available_bytes - kGiB, 0), .bound_by = "available"};
  }
  return budget;
}

Result<MemoryPlan> MakeMemoryPlan(const ModelLayout& layout, const PieceIndex& index, const MemoryRequest& request,
                                  const SystemMemory& system) {
  if (request.expert_fraction > 1 || std::isnan(request.expert_fraction)) {
    return InvalidArgumentError(
        fmt::format("--expert-cache-frac {} is not a share of the budget; give 0 to 1", request.expert_fraction));
  }
  if (request.budget_bytes && request.memory_bytes) {
    return InvalidArgumentError("--budget and --memory each decide what weights get; give one of them");
  }
  const Needs needs = MeasureNeeds(layout, index);
  Ceiling ceiling = FindCeiling(system);
  if (request.memory_bytes) {
    ASSIGN_OR_RETURN(ceiling, LowerTo(*request.memory_bytes, ceiling));
  }
  const AutoBudget automatic = ComputeAutoBudget(system);

  MemoryPlan plan = PlanOutside(layout, index, request, system);
  plan.floor_bytes = needs.floor_bytes();
  plan.full_bytes = needs.full_bytes();
  plan.budget_bound = request.budget_bytes ? "flag" : automatic.bound_by;
  plan.ceiling_bytes = ceiling.bytes;
  plan.ceiling_bound = ceiling.bound;
  const int64_t largest = LargestBudget(needs, request.expert_fraction, layout, plan);
  int64_t budget_bytes = request.budget_bytes.value_or(automatic.bytes);
  if (request.memory_bytes) {
    budget_bytes = std::max(std::min(largest, needs.full_bytes()), needs.floor_bytes());
    plan.budget_bound = largest < needs.full_bytes() ? ceiling.bound : "all weights";
  }

  if (largest < needs.floor_bytes()) {
    MemoryPlan smallest = plan;
    PlanInside(needs, request.expert_fraction, needs.floor_bytes(), smallest);
    AddUp(layout, smallest);
    if (request.memory_bytes) {
      // The next run measures itself anew and may find a little more in use.
      return ResourceExhaustedError(
          fmt::format("--memory {} is below the {} that {} needs at least (weights {}: {}; {}); try --memory {}",
                      FormatSize(*request.memory_bytes), FormatSize(smallest.total_bytes), needs.model,
                      FormatSize(needs.floor_bytes()), FloorText(needs), OutsideText(smallest),
                      SizeFlagAtLeast(smallest.total_bytes + 3 * kMiB)));
    }
    return ResourceExhaustedError(fmt::format(
        "{} needs {} even at its smallest budget of {} ({}; outside it {}), more than the {} of {}; free or allow more "
        "memory, or ask for a shorter context",
        needs.model, FormatSize(smallest.total_bytes), FormatSize(needs.floor_bytes()), FloorText(needs),
        OutsideText(smallest), FormatSize(ceiling.bytes), BoundText(ceiling.bound)));
  }
  if (budget_bytes < needs.floor_bytes()) {
    const std::string given = request.budget_bytes ? fmt::format("--budget {}", FormatSize(budget_bytes))
                                                   : fmt::format("the automatic budget of {} (bound by {})",
                                                                 FormatSize(budget_bytes), automatic.bound_by);
    return ResourceExhaustedError(fmt::format("{} is below the floor of {} for {} ({}); try --budget {}", given,
                                              FormatSize(needs.floor_bytes()), needs.model, FloorText(needs),
                                              SmallestFlag(needs, largest)));
  }

  PlanInside(needs, request.expert_fraction, budget_bytes, plan);
  AddUp(layout, plan);
  if (ceiling.bytes == 0 || plan.total_bytes <= ceiling.bytes) return plan;
  if (!request.budget_bytes) {
    PlanInside(needs, request.expert_fraction, largest, plan);
    AddUp(layout, plan);
    plan.budget_bound = ceiling.bound;
    return plan;
  }
  // The next run measures itself anew and may find a little more in use.
  const int64_t safe = largest - std::max(kMiB, largest / kSuggestionShare);
  const std::string most = SizeFlagAtMost(std::max<int64_t>(safe, 0));
  const bool works = ParseSize(most).value() >= needs.floor_bytes();
  return ResourceExhaustedError(
      fmt::format("--budget {} needs {} in all (outside the budget {}), more than the {} of {}; try --budget {}",
                  FormatSize(budget_bytes), FormatSize(plan.total_bytes), OutsideText(plan), FormatSize(ceiling.bytes),
                  BoundText(ceiling.bound), works ? most : SmallestFlag(needs, largest)));
}

MemoryPlan MakeResidentPlan(const ModelLayout& layout, const PieceIndex& index, int64_t kv_bytes,
                            int64_t scratch_bytes) {
  const Needs needs = MeasureNeeds(layout, index);
  MemoryPlan plan = PlanOutside(
      layout, index, {.budget_bytes = std::nullopt, .kv_bytes = kv_bytes, .scratch_bytes = scratch_bytes}, {});
  plan.floor_bytes = needs.floor_bytes();
  plan.full_bytes = needs.full_bytes();
  PlanInside(needs, -1, needs.full_bytes(), plan);
  AddUp(layout, plan);
  return plan;
}

namespace {

Needs MeasureNeeds(const ModelLayout& layout, const PieceIndex& index) {
  Needs needs;
  needs.model = layout.spec != nullptr ? std::string(layout.spec->name) : std::string("this model");
  int64_t largest_core = 0;
  for (const PieceId core : layout.core) {
    const int64_t bytes = index.piece(core).slot_bytes;
    needs.core_bytes.push_back(bytes);
    needs.all_cores_bytes += bytes;
    largest_core = std::max(largest_core, bytes);
  }
  needs.core_floor_bytes = std::min(needs.all_cores_bytes, kRingSlots * largest_core);
  for (size_t piece = 0; piece < layout.pieces.size(); ++piece) {
    if (layout.pieces[piece].kind != PieceKind::kExpert) continue;
    ++needs.experts;
    needs.expert_slot_bytes = std::max(needs.expert_slot_bytes, index.piece(static_cast<PieceId>(piece)).slot_bytes);
  }
  for (const PieceId first : layout.first_expert) needs.moe_layers += first >= 0 ? 1 : 0;
  needs.experts_per_token = layout.hparams.experts_per_token;
  needs.expert_floor_slots =
      static_cast<int32_t>(std::min<int64_t>(needs.moe_layers * needs.experts_per_token, needs.experts));
  return needs;
}

MemoryPlan PlanOutside(const ModelLayout& layout, const PieceIndex& index, const MemoryRequest& request,
                       const SystemMemory& system) {
  MemoryPlan plan;
  plan.embed_bytes = layout.hparams.tied ? index.piece(layout.embed).slot_bytes
                                         : EmbeddingRows::MemoryBytes(layout.pieces[static_cast<size_t>(layout.embed)]);
  if (layout.per_layer_embed >= 0) {
    plan.embed_bytes += EmbeddingRows::MemoryBytes(layout.pieces[static_cast<size_t>(layout.per_layer_embed)]);
  }
  plan.norm_head_bytes = index.piece(layout.norm_head).slot_bytes;
  plan.read_buffer_bytes = kReadBufferBytes;
  plan.kv_bytes = request.kv_bytes;
  plan.scratch_bytes = request.scratch_bytes;
  plan.drafter_bytes = request.drafter_bytes;
  plan.process_bytes = system.process_bytes;
  return plan;
}

void PlanInside(const Needs& needs, double expert_fraction, int64_t budget_bytes, MemoryPlan& plan) {
  const int64_t slot = needs.expert_slot_bytes;
  const int64_t expert_floor = needs.expert_floor_slots * slot;
  CHECK(budget_bytes >= needs.floor_bytes());
  plan.budget_bytes = budget_bytes;
  int64_t slots = 0;
  if (slot > 0) {
    if (expert_fraction >= 0) {
      const int64_t wanted = static_cast<int64_t>(expert_fraction * static_cast<double>(budget_bytes)) / slot;
      slots =
          std::min(std::max<int64_t>(wanted, needs.expert_floor_slots), (budget_bytes - needs.core_floor_bytes) / slot);
    } else if (needs.all_cores_bytes + expert_floor <= budget_bytes) {
      slots = (budget_bytes - needs.all_cores_bytes) / slot;
    } else {
      slots = needs.expert_floor_slots;
    }
    slots = std::min<int64_t>(slots, needs.experts);
  }
  PlaceCores(needs, budget_bytes - slots * slot, plan);
  if (slot > 0 && expert_fraction < 0) {
    // What is too little for one more core may still be some experts.
    slots = std::min<int64_t>((budget_bytes - plan.core_region_bytes) / slot, needs.experts);
  }
  plan.expert_slots = static_cast<int32_t>(slots);
  plan.expert_slot_bytes = slot;
  plan.expert_region_bytes = slots * slot;
  CHECK(plan.core_region_bytes + plan.expert_region_bytes <= budget_bytes);
}

// The longest run of first layers that fits beside a ring for the others.
void PlaceCores(const Needs& needs, int64_t available_bytes, MemoryPlan& plan) {
  const size_t layers = needs.core_bytes.size();
  if (needs.all_cores_bytes <= available_bytes) {
    plan.pinned_cores = static_cast<int32_t>(layers);
    plan.ring_slots = 0;
    plan.core_slot_bytes = 0;
    plan.core_region_bytes = needs.all_cores_bytes;
    return;
  }
  std::vector<int64_t> largest_from(layers + 1, 0);
  for (size_t layer = layers; layer-- > 0;) {
    largest_from[layer] = std::max(largest_from[layer + 1], needs.core_bytes[layer]);
  }
  int64_t pinned_bytes = 0;
  for (size_t pinned = 0; pinned + kRingSlots <= layers; ++pinned) {
    const int64_t region = pinned_bytes + kRingSlots * largest_from[pinned];
    if (region <= available_bytes) {
      plan.pinned_cores = static_cast<int32_t>(pinned);
      plan.ring_slots = kRingSlots;
      plan.core_slot_bytes = largest_from[pinned];
      plan.core_region_bytes = region;
    }
    pinned_bytes += needs.core_bytes[pinned];
  }
  CHECK(plan.core_region_bytes > 0 && plan.core_region_bytes <= available_bytes);
}

void AddUp(const ModelLayout& layout, MemoryPlan& plan) {
  const int64_t parts = plan.core_region_bytes + plan.expert_region_bytes + plan.embed_bytes + plan.norm_head_bytes +
                        plan.read_buffer_bytes + plan.kv_bytes + plan.scratch_bytes + plan.drafter_bytes +
                        plan.process_bytes;
  plan.reserve_bytes =
      kReserveBytes + parts / kReserveShare + static_cast<int64_t>(layout.pieces.size()) * kReservePerPiece;
  plan.total_bytes = parts + plan.reserve_bytes;
}

// The smallest of what is known.
Ceiling FindCeiling(const SystemMemory& system) {
  Ceiling ceiling;
  const auto lower = [&](int64_t bytes, std::string_view bound) {
    if (ceiling.bytes == 0 || bytes < ceiling.bytes)
      ceiling = {.bytes = std::max<int64_t>(bytes, 1), .bound = std::string(bound)};
  };
  const int64_t margin = system.physical_bytes / kSystemShare;
  if (system.physical_bytes > 0) lower(system.physical_bytes - margin, "physical");
  if (system.available_bytes > 0) lower(system.available_bytes + system.process_bytes - margin, "available");
  if (system.cgroup_limit_bytes > 0) lower(system.cgroup_limit_bytes, "cgroup");
  if (system.cgroup_share_bytes > 0) lower(system.cgroup_share_bytes, "cgroup");
  if (system.address_space_bytes > 0) {
    // Address space that is mapped and not used (libraries, stacks, arenas) counts against this limit and no other.
    const int64_t unused = std::max<int64_t>(system.process_virtual_bytes - system.process_bytes, 0);
    lower(system.address_space_bytes - unused, "address space");
  }
  return ceiling;
}

// The ceiling of a process that may use no more than `memory_bytes`. Errors: kResourceExhausted beyond the system's.
Result<Ceiling> LowerTo(int64_t memory_bytes, const Ceiling& ceiling) {
  if (ceiling.bytes == 0 || memory_bytes <= ceiling.bytes) {
    return Ceiling{.bytes = std::max<int64_t>(memory_bytes, 1), .bound = "--memory"};
  }
  const int64_t safe = ceiling.bytes - std::max(kMiB, ceiling.bytes / kSuggestionShare);
  return ResourceExhaustedError(fmt::format("--memory {} is more than the {} of {}; try --memory {}",
                                            FormatSize(memory_bytes), FormatSize(ceiling.bytes),
                                            BoundText(ceiling.bound), SizeFlagAtMost(std::max<int64_t>(safe, 0))));
}

// The largest budget worth giving whose plan stays below the ceiling; less than the floor when none does.
int64_t LargestBudget(const Needs& needs, double expert_fraction, const ModelLayout& layout, MemoryPlan plan) {
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  if (plan.ceiling_bytes == 0) return kNoLimit;
  const auto fits = [&](int64_t budget_bytes) {
    PlanInside(needs, expert_fraction, budget_bytes, plan);
    AddUp(layout, plan);
    return plan.total_bytes <= plan.ceiling_bytes;
  };
  int64_t low = needs.floor_bytes();
  // From here on a larger budget changes nothing.
  const double everything = static_cast<double>(needs.full_bytes()) / (expert_fraction > 0 ? expert_fraction : 1);
  int64_t high =
      std::max(everything < 4e18 ? static_cast<int64_t>(everything) + 1 : int64_t{4'000'000'000'000'000'000}, low);
  if (!fits(low)) return low - 1;
  if (fits(high)) return kNoLimit;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::string FloorText(const Needs& needs) {
  const std::string cores = needs.core_bytes.size() > 2 ? "two cores" : "all cores";
  if (needs.expert_floor_slots == 0) return cores;
  return fmt::format("{} experts x {} layers and {}", needs.experts_per_token, needs.moe_layers, cores);
}

// The floor as a flag's value: rounded up where that still fits, else to the byte.
std::string SmallestFlag(const Needs& needs, int64_t largest_bytes) {
  const std::string rounded = SizeFlagAtLeast(needs.floor_bytes());
  return ParseSize(rounded).value() <= largest_bytes ? rounded : std::to_string(needs.floor_bytes());
}

std::string OutsideText(const MemoryPlan& plan) {
  const std::string drafter = plan.drafter_bytes > 0 ? fmt::format("drafter {}, ", FormatSize(plan.drafter_bytes)) : "";
  return fmt::format("embedding and head {}, KV cache {}, activations {}, {}program and reserve {}",
                     FormatSize(plan.embed_bytes + plan.norm_head_bytes), FormatSize(plan.kv_bytes),
                     FormatSize(plan.scratch_bytes), drafter,
                     FormatSize(plan.process_bytes + plan.read_buffer_bytes + plan.reserve_bytes));
}

// "available memory", "the address space limit": a bound in a sentence.
std::string BoundText(const std::string& bound) {
  if (bound == "physical" || bound == "available") return bound + " memory";
  if (bound == "cgroup") return "the cgroup limit less what others in the group hold";
  return fmt::format("the {} limit", bound);
}

}  // namespace
}  // namespace nunspark
