// MemoryPlan: every byte that grows with the model, the context or the load, decided once before any is allocated. The
// one function that says what fits; every verb uses it, so that planning and running never disagree.
#ifndef NUNSPARK_WEIGHTS_MEMORY_PLAN_H_
#define NUNSPARK_WEIGHTS_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_reservation.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "weights/piece_index.h"

namespace nunspark {

// What the system grants, measured once. Zero = unknown.
struct SystemMemory {
  int64_t physical_bytes = 0;
  int64_t available_bytes = 0;        // MemAvailable, less what other engines have planned and not yet touched
  int64_t cgroup_limit_bytes = 0;     // smallest limit of the control group and its ancestors, v1 or v2
  int64_t cgroup_share_bytes = 0;     // what the groups' limits leave to this process beside the others in them
  int64_t address_space_bytes = 0;    // RLIMIT_AS
  int64_t process_bytes = 0;          // resident in this process when measured: code, tables, tokenizer, indices
  int64_t process_virtual_bytes = 0;  // its address space when measured
};
// Measure after the model, its index and the tokenizer are open: what they take counts as process_bytes.
// `reservations`: where engines enter their plans.
SystemMemory MeasureSystemMemory(const std::string& reservations = ReservationFolder());

// Contract 3.1: 0.75 x RAM - 2 GiB, at least 2 GiB, 4 GB when RAM is unknown; lowered (never raised) to the cgroup
// limit and to available memory - 1 GiB. `bound_by` says which: "ram", "cgroup", "available", "unknown-ram".
struct AutoBudget {
  int64_t bytes = 0;
  std::string bound_by;
};
AutoBudget ComputeAutoBudget(const SystemMemory& system);

struct MemoryRequest {
  std::optional<int64_t> budget_bytes;    // --budget; empty = auto
  std::optional<int64_t> memory_bytes{};  // --memory, the whole process: the largest budget that stays below it
  double expert_fraction = -1;            // --expert-cache-frac, 0 to 1 of the budget; negative = decided by the plan
  int64_t kv_bytes = 0;                   // for the planned context
  int64_t scratch_bytes = 0;              // activations, logits, thread stacks
  int64_t drafter_bytes = 0;              // a drafter's weights, keys and values, activations
};

// Sizes in bytes. slots x slot size = region.
struct MemoryPlan {
  // Inside the budget.
  int64_t budget_bytes = 0;
  std::string budget_bound;       // "flag", AutoBudget::bound_by, or ceiling_bound when that lowered an auto budget;
                                  // "all weights" when a flag for the whole process allows more than they need
  int64_t floor_bytes = 0;        // smallest budget this model takes
  int64_t full_bytes = 0;         // budget at which everything stays resident
  int32_t pinned_cores = 0;       // cores of layers [0, pinned_cores) stay resident
  int32_t ring_slots = 0;         // the other cores pass through these (0 when all are pinned)
  int64_t core_slot_bytes = 0;    // of a ring slot: the largest core that passes through
  int64_t core_region_bytes = 0;  // pinned cores + ring
  int32_t expert_slots = 0;       // 0 for dense models
  int64_t expert_slot_bytes = 0;
  int64_t expert_region_bytes = 0;

  // Outside it.
  int64_t embed_bytes = 0;  // the table when it is also the head, else the row cache; a row table's too
  int64_t norm_head_bytes = 0;
  int64_t read_buffer_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t drafter_bytes = 0;
  int64_t process_bytes = 0;
  int64_t reserve_bytes = 0;  // allocator slack, page tables, stacks

  int64_t total_bytes = 0;    // of the whole process
  int64_t ceiling_bytes = 0;  // what the system will leave us; 0 = unknown
  std::string ceiling_bound;  // "physical", "available", "cgroup", "address space", "--memory"
};

// Splits the budget. All cores stay resident if they fit beside the experts' floor (one token's routed set over all
// layers), and experts get the rest; else experts get their floor and the cores of the first layers stay resident while
// the others pass through a ring. Takes no more than the model needs. An explicit budget is taken or refused, never
// changed; an automatic one shrinks so that the whole process stays below the ceiling. Errors: kResourceExhausted with
// the numbers: below the floor ("--budget 600.0 MB is below the floor of 1.05 GB for qwen3_moe (8 experts x 48 layers
// and two cores); try --budget 1.05GB"), or beyond the ceiling; a flag value it suggests works. The same for
// memory_bytes, which is a ceiling lower than the system's. kInvalidArgument for a fraction above 1, and for a budget
// and memory_bytes together.
Result<MemoryPlan> MakeMemoryPlan(const ModelLayout& layout, const PieceIndex& index, const MemoryRequest& request,
                                  const SystemMemory& system);

// Of a model that stays in memory as a whole beside the one that a budget is for: its total is part of that one's plan
// (MemoryRequest::drafter_bytes).
MemoryPlan MakeResidentPlan(const ModelLayout& layout, const PieceIndex& index, int64_t kv_bytes,
                            int64_t scratch_bytes);

}  // namespace nunspark

#endif  // NUNSPARK_WEIGHTS_MEMORY_PLAN_H_
