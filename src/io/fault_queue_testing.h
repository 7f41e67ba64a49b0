// ReadQueues for tests: one passes requests to a real one and makes chosen ones fail, come short, come late or come
// wrong, the other one keeps them.
//
// Deterministic: what happens to a request depends only on its number and the plan, never on time.
#ifndef NUNSPARK_IO_FAULT_QUEUE_TESTING_H_
#define NUNSPARK_IO_FAULT_QUEUE_TESTING_H_

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/read_queue.h"
#include "nunspark/status.h"

namespace nunspark {

struct Fault {
  enum class Kind {
    kNone,
    kError,  // the device fails with `error`; dst is filled with rubbish
    kShort,  // the file seems to end `at` bytes into the request: kDataLoss, the rest of dst is rubbish
    kFlip,   // bit `at` of the data is inverted and the read succeeds, as on a drive that lies
    kDelay,  // handed out only after `at` later completions, or when nothing else is left in flight
  };

  Kind kind = Kind::kNone;
  int64_t request = 0;  // counted from 0 in the order of submission
  int64_t at = 0;
  int error = EIO;
};

struct FaultPlan {
  // Exact faults; at most one for a request.
  std::vector<Fault> faults;

  // For all other requests: how many of 1000 get each kind, chosen by `seed` and the request's number.
  uint64_t seed = 0;
  int errors_per_mille = 0;
  int shorts_per_mille = 0;
  int flips_per_mille = 0;
  int delays_per_mille = 0;
};

class FaultQueue final : public ReadQueue {
 public:
  // `paths` as given to OpenReadQueue, for messages.
  FaultQueue(std::unique_ptr<ReadQueue> inner, std::vector<std::string> paths, FaultPlan plan);

  void Submit(const ReadRequest& request) override;
  void Poll(Wait wait, std::vector<ReadCompletion>& out) override;
  void Wake() override { inner_->Wake(); }
  std::string Description() const override { return inner_->Description() + " with faults"; }
  std::string FallbackReason() const override { return inner_->FallbackReason(); }

  // Thread-safe counters.
  int64_t submitted() const { return submitted_; }
  int64_t injected() const { return injected_; }

 private:
  struct Pending {
    ReadRequest request;
    Fault fault;
  };
  struct Held {
    ReadCompletion completion;
    int64_t wait_for = 0;  // completions still to be handed out before it
  };

  Fault Choose(int64_t number, const ReadRequest& request) const;
  void Arrive(const ReadCompletion& inner);
  void HandOut(std::vector<ReadCompletion>& out);

  std::unique_ptr<ReadQueue> inner_;
  const std::vector<std::string> paths_;
  const FaultPlan plan_;
  std::unordered_map<uint64_t, Pending> pending_;  // by number, which is the inner queue's tag
  std::vector<ReadCompletion> ready_;
  std::vector<Held> held_;
  std::atomic<int64_t> submitted_{0};
  std::atomic<int64_t> injected_{0};
};

// A drive that begins no read while it hangs.
class HangingQueue final : public ReadQueue {
 public:
  HangingQueue(std::unique_ptr<ReadQueue> inner, const bool& hangs) : inner_(std::move(inner)), hangs_(hangs) {
    ++count;
  }
  ~HangingQueue() override { --count; }
  void Submit(const ReadRequest& request) override { waiting_.push_back(request); }
  void Poll(Wait wait, std::vector<ReadCompletion>& out) override {
    if (hangs_) return;
    for (const ReadRequest& request : waiting_) inner_->Submit(request);
    waiting_.clear();
    inner_->Poll(wait, out);
  }
  void Wake() override { inner_->Wake(); }
  std::string Description() const override { return inner_->Description(); }
  std::string FallbackReason() const override { return inner_->FallbackReason(); }

  static inline int count = 0;  // of those that live

 private:
  const std::unique_ptr<ReadQueue> inner_;
  const bool& hangs_;
  std::vector<ReadRequest> waiting_;
};

}  // namespace nunspark

#endif  // NUNSPARK_IO_FAULT_QUEUE_TESTING_H_
