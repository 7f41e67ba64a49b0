// Scheduler: many generations at once, on a thread of its own.
//
//   auto scheduler = (*engine)->NewScheduler({});
//   (*scheduler)->Submit({.prompt = ids, .options = {.max_tokens = 64}},
//                        {.on_token = [](const GeneratedToken& token) { ...; return true; },
//                         .on_end = [](Result<GenerateResult> result) { ... }});
//
// Sequences join and leave at every step. A step reads every weight that it needs once and makes a token of each
// sequence, so the tokens of all come at far less than the sum of their costs. Each gets the very tokens that
// Session::Generate gives it alone.
#ifndef NUNSPARK_SCHEDULER_H_
#define NUNSPARK_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <functional>

#include "nunspark/session.h"
#include "nunspark/stats.h"
#include "nunspark/status.h"

namespace nunspark {

struct EngineStats;

struct SchedulerOptions {
  int32_t queue = 1 << 20;  // requests that wait, at most
  // While sequences decode, prompts beside them get so much of a step that it lasts about this long; 0: as much as
  // fits.
  double step_target_s = 0.5;
};

// All are called by the scheduler's thread, which makes no token meanwhile, and must not call the scheduler, but for
// Submit and Cancel.
struct RequestCallbacks {
  // After each token, EOS included. Returning false ends the request with FinishReason::kCancelled. May be empty.
  std::function<bool(const GeneratedToken& token)> on_token{};
  // During the prompt: tokens done so far and in total. Returning false ends the request likewise. May be empty.
  std::function<bool(int64_t done, int64_t total)> on_prompt{};
  // Once, as the last call. Errors: those of reads; a step that fails ends all requests in it.
  std::function<void(Result<GenerateResult> result)> on_end;
};

// Background requests run when no other waits: one of these that comes later still goes first.
enum class Urgency : uint8_t { kNormal, kBackground };

struct SchedulerStats {
  int64_t running = 0;
  int64_t waiting = 0;             // but for background requests
  int64_t background_running = 0;  // of those that run
  int64_t background_waiting = 0;
  int64_t steps = 0;
  int64_t tokens = 0;  // generated, of all requests
};

class Scheduler {
 public:
  // Ends what is left with kCancelled.
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;

  // Requests of an urgency run in this order, as soon as there is room for all of their tokens. Returns the request's
  // id. Thread-safe. Errors: kInvalidArgument for a request that Session::Generate would refuse; kResourceExhausted
  // when the queue (there is one for each urgency) is full, or the engine has no room for so many tokens at all. One
  // that still waits at `start_by` ends with FinishReason::kCancelled, after a step at the latest.
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual Result<uint64_t> Submit(SequenceRequest request, RequestCallbacks callbacks,
                                  Urgency urgency = Urgency::kNormal, TimePoint start_by = TimePoint::max()) = 0;

  // Ends a request with kCancelled before the next step; does nothing when it has ended. Thread-safe.
  virtual void Cancel(uint64_t id) = 0;

  // Thread-safe. The engine's are those after a step not long ago.
  virtual SchedulerStats stats() const = 0;
  virtual EngineStats engine_stats() const = 0;

 protected:
  Scheduler() = default;
};

}  // namespace nunspark

#endif  // NUNSPARK_SCHEDULER_H_
