// The scheduler's thread around a SequenceGroup: a queue in, callbacks out.
#ifndef NUNSPARK_ENGINE_SCHEDULER_H_
#define NUNSPARK_ENGINE_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "decode/sequence_group.h"
#include "nunspark/engine.h"
#include "nunspark/scheduler.h"
#include "nunspark/status.h"

namespace nunspark {

// What a scheduler needs of its engine, which outlives it.
struct SchedulerTarget {
  SchedulerOptions options;
  int64_t kv_tokens = 0;  // positions of keys and values for all sequences together
  int64_t vocab_size = 0;
  std::function<GroupTarget(const std::atomic<bool>& cancelled)> target;
  std::function<Status()> after_step;  // on the scheduler's thread, as engine_stats
  std::function<EngineStats()> engine_stats;
  std::function<void()> on_close;
};

// Errors: kInvalidArgument.
Status CheckSchedulerOptions(const SchedulerOptions& options);

// Errors: kResourceExhausted when the system refuses a thread. REQUIRES: options that passed.
Result<std::unique_ptr<Scheduler>> MakeScheduler(SchedulerTarget target);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_SCHEDULER_H_
