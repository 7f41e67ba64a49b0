#include "kv/kv_spill.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/keep_forever.h"

namespace nunspark {
namespace {

using Clock = std::chrono::steady_clock;

// Of one read: what a slow drive brings in far less than the time in which it has to answer.
constexpr int64_t kReadBytes = 16 << 20;

constexpr size_t kNoLayer = std::numeric_limits<size_t>::max();
constexpr int32_t kNoBlock = -1;

uint64_t ChecksumOf(std::span<const uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// Adds the time of its life to a counter.
class Stall {
 public:
  explicit Stall(int64_t& us) : us_(us) {}
  ~Stall() { us_ += std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_).count(); }

 private:
  int64_t& us_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

std::string DefaultSpillFolder() {
  const char* const named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/var/tmp";
}

KvSpill::KvSpill(MappedMemory& memory, KvSpillOptions options) : memory_(memory), options_(std::move(options)) {}

KvSpill::~KvSpill() {
  if (in_flight_ > 0) (void)Drain();
  // What hangs may still write to the memory.
  if (in_flight_ > 0) KeepForever(std::pair(std::move(queue_), std::move(memory_)));
}

Result<std::unique_ptr<KvSpill>> KvSpill::Create(MappedMemory& memory, std::span<const int64_t> first,
                                                 std::span<const int64_t> pitch, std::span<const int64_t> blocks,
                                                 KvSpillOptions options) {
  std::unique_ptr<KvSpill> spill(new KvSpill(memory, std::move(options)));
  size_t all = 0, most = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i] % kIoAlignment == 0 && pitch[i] % kIoAlignment == 0);
    spill->layers_.push_back(
        {.first = first[i], .pitch = pitch[i], .blocks = static_cast<int32_t>(blocks[i]), .first_block = all});
    all += static_cast<size_t>(blocks[i]);
    most = std::max(most, static_cast<size_t>(blocks[i]));
  }
  spill->order_ = spill->options_.order;
  if (spill->order_.empty()) {
    spill->order_.resize(first.size());
    std::iota(spill->order_.begin(), spill->order_.end(), 0);
  }
  spill->position_ = spill->order_.size() - 1;
  spill->blocks_.resize(all);
  spill->needed_.reserve(most);
  spill->ahead_.reserve(most);
  spill->victims_.reserve(first.size());
  spill->seen_.resize(first.size());
  spill->runs_.reserve(2 * most);
  spill->completions_.reserve(2 * most);

  const std::string& named = spill->options_.folder;
  ASSIGN_OR_RETURN(spill->file_, File::CreateTemporary(named.empty() ? DefaultSpillFolder() : named));
  RETURN_IF_ERROR(spill->file_.Truncate(memory.bytes()));
  if (spill->options_.io.direct) spill->file_.TryDirect();
  // The queue opens the nameless file once more.
  ASSIGN_OR_RETURN(spill->queue_,
                   OpenReadQueue({fmt::format("/proc/self/fd/{}", spill->file_.fd())}, spill->options_.io));
  if (spill->options_.wrap_queue) spill->queue_ = spill->options_.wrap_queue(std::move(spill->queue_));
  return spill;
}

bool KvSpill::Taken(size_t layer, int32_t block) {
  // What is on its way would come after what is written next.
  if (At(layer, block).reading) (void)Drain();
  return !At(layer, block).reading;
}

void KvSpill::Released(size_t layer, int32_t block) {
  Block& it = At(layer, block);
  it.written = false;
  it.stored = false;
  if (it.resident && it.used == layers_[layer].pass) --layers_[layer].active;
  it.used = 0;
}

// ---- a pass

void KvSpill::Begin(size_t layer) {
  in_use_ = layer;
  ++layers_[layer].pass;
  layers_[layer].active = 0;
  // A pass that was given up left the position anywhere.
  for (size_t step = 1; step <= order_.size(); ++step) {
    const size_t at = (position_ + step) % order_.size();
    if (order_[at] != static_cast<int32_t>(layer)) continue;
    position_ = at;
    break;
  }
  next_ = static_cast<size_t>(order_[(position_ + 1) % order_.size()]);
  needed_.clear();
  for (const int32_t block : ahead_) At(next_, block).listed = false;
  ahead_.clear();
}

void KvSpill::Need(int32_t block) {
  Block& it = At(in_use_, block);
  Layer& layer = layers_[in_use_];
  if (it.used == layer.pass) return;
  it.used = layer.pass;
  if (it.resident) {
    ++layer.active;
    if (!it.reading) return;
  }
  needed_.push_back(block);
}

void KvSpill::NeedNext(int32_t block) {
  if (next_ == in_use_) return;
  Block& it = At(next_, block);
  Layer& layer = layers_[next_];
  if (it.used != layer.pass) {
    it.used = layer.pass;
    if (it.resident) ++layer.active;
  }
  if (!options_.prefetch || it.resident || !it.stored || it.listed) return;
  it.listed = true;
  ahead_.push_back(block);
}

Status KvSpill::Await() {
  // Reads ahead that failed are tried once more here, where somebody needs them.
  if (in_flight_ > 0) {
    const Stall stall(stats_.stall_us);
    const Status drained = Drain();
    if (in_flight_ > 0) return drained;
  }
  std::erase_if(needed_, [&](int32_t block) { return At(in_use_, block).resident; });
  const bool hit = std::none_of(needed_.begin(), needed_.end(), [&](int32_t b) { return At(in_use_, b).stored; });
  ++(hit ? stats_.hits : stats_.misses);
  if (!needed_.empty()) {
    const Stall stall(stats_.stall_us);
    RETURN_IF_ERROR(MakeRoom(std::ssize(needed_) * layers_[in_use_].pitch, in_use_, kNoLayer));
    Read(in_use_, needed_);
    RETURN_IF_ERROR(Drain());
  }
  ReadAhead();
  return Status();
}

// As much of the next layer as there is room for without the layer in use.
void KvSpill::ReadAhead() {
  if (ahead_.empty()) return;
  const auto resident_bytes = [&](size_t layer) { return layers_[layer].resident * layers_[layer].pitch; };
  const int64_t pitch = layers_[next_].pitch;
  const auto limit = [&](int64_t bytes) {
    const int64_t most = std::max<int64_t>(bytes, 0) / pitch;
    if (most < std::ssize(ahead_)) ahead_.resize(static_cast<size_t>(most));
  };
  for (const int32_t block : ahead_) At(next_, block).listed = false;
  std::sort(ahead_.begin(), ahead_.end());
  limit(options_.budget_bytes - resident_bytes(in_use_) - resident_bytes(next_));
  {
    const Stall stall(stats_.stall_us);
    // A failure is for those to report who cannot do without.
    (void)MakeRoom(std::ssize(ahead_) * pitch, in_use_, next_);
  }
  limit(options_.budget_bytes - resident_bytes_);
  Read(next_, ahead_);
  ahead_.clear();
}

Status KvSpill::Fetch(size_t layer, int32_t block, int32_t kept) {
  if (in_flight_ > 0) {
    const Status drained = Drain();
    if (in_flight_ > 0) return drained;
  }
  if (At(layer, block).resident) return Status();
  fetched_layer_ = layer;
  kept_block_ = kept;
  const Status room = MakeRoom(layers_[layer].pitch, kNoLayer, kNoLayer);
  kept_block_ = kNoBlock;
  RETURN_IF_ERROR(room);
  std::vector<int32_t>& one = needed_;
  one.assign(1, block);
  Read(layer, one);
  return Drain();
}

// ---- memory

std::span<uint8_t> KvSpill::Memory(size_t layer, int32_t begin, int32_t end) const {
  const Layer& it = layers_[layer];
  return {memory_.data() + it.first + begin * it.pitch, static_cast<size_t>((end - begin) * it.pitch)};
}

void KvSpill::Gain(size_t layer, int32_t block) {
  Block& it = At(layer, block);
  it.resident = true;
  ++layers_[layer].resident;
  if (it.used == layers_[layer].pass) ++layers_[layer].active;
  resident_bytes_ += layers_[layer].pitch;
  stats_.resident_peak_bytes = std::max(stats_.resident_peak_bytes, resident_bytes_);
}

void KvSpill::Lose(size_t layer, int32_t begin, int32_t end) {
  const std::span<uint8_t> memory = Memory(layer, begin, end);
  memory_.GiveUp(memory.data() - memory_.data(), std::ssize(memory));
  for (int32_t block = begin; block < end; ++block) {
    Block& it = At(layer, block);
    it.resident = false;
    --layers_[layer].resident;
    if (it.used == layers_[layer].pass) --layers_[layer].active;
  }
  resident_bytes_ -= std::ssize(memory);
}

// Until `bytes` more fit the budget, or only the two layers are left. Errors: Store's.
Status KvSpill::MakeRoom(int64_t bytes, size_t kept, size_t also_kept) {
  if (Fits(bytes)) return Status();
  ListVictims();
  for (const size_t layer : victims_) {
    if (layers_[layer].resident > layers_[layer].active) RETURN_IF_ERROR(Evict(layer, Which::kIdle, bytes));
  }
  for (const size_t layer : victims_) {
    if (layer == kept || layer == also_kept) continue;
    // What the file has already costs no write.
    RETURN_IF_ERROR(Evict(layer, Which::kStored, bytes));
    RETURN_IF_ERROR(Evict(layer, Which::kAny, bytes));
  }
  return Status();
}

// All layers, the one whose next use is farthest away first: the one in use, then those before it.
void KvSpill::ListVictims() {
  victims_.clear();
  std::fill(seen_.begin(), seen_.end(), false);
  for (size_t step = 1; step <= order_.size(); ++step) {
    const size_t layer = static_cast<size_t>(order_[(position_ + step) % order_.size()]);
    if (!seen_[layer]) victims_.push_back(layer);
    seen_[layer] = true;
  }
  std::reverse(victims_.begin(), victims_.end());
}

// Blocks of the layer leave, in runs, until `bytes` more fit.
Status KvSpill::Evict(size_t layer, Which which, int64_t bytes) {
  const int32_t end = layers_[layer].blocks;
  for (int32_t block = 0; block < end && layers_[layer].resident > 0 && !Fits(bytes);) {
    int32_t run_end = block;
    int64_t run_bytes = 0;
    while (run_end < end && MayLeave(layer, run_end, which) && !Fits(bytes - run_bytes)) {
      run_bytes += layers_[layer].pitch;
      ++run_end;
    }
    if (run_end > block) {
      RETURN_IF_ERROR(Store(layer, block, run_end));
      Lose(layer, block, run_end);
    }
    block = run_end + 1;
  }
  return Status();
}

bool KvSpill::MayLeave(size_t layer, int32_t block, Which which) {
  const Block& it = At(layer, block);
  if (!it.resident || it.reading || (block == kept_block_ && layer == fetched_layer_)) return false;
  switch (which) {
    case Which::kIdle: return it.used != layers_[layer].pass;
    case Which::kStored: return it.stored || !it.written;
    case Which::kAny: return true;
  }
  return false;
}

// Writes those blocks of [begin, end) that the file does not have.
Status KvSpill::Store(size_t layer, int32_t begin, int32_t end) {
  const auto missing = [&](int32_t block) { return At(layer, block).written && !At(layer, block).stored; };
  while (begin < end) {
    int32_t run_end = begin;
    while (run_end < end && missing(run_end)) ++run_end;
    if (run_end == begin) {
      ++begin;
      continue;
    }
    const std::span<const uint8_t> run = Memory(layer, begin, run_end);
    const Status written = file_.WriteAt(run.data() - memory_.data(), run);
    if (!written.ok()) return written.WithContext("spilling the KV cache");
    stats_.spilled_bytes += std::ssize(run);
    for (; begin < run_end; ++begin) {
      At(layer, begin).stored = true;
      At(layer, begin).checksum = ChecksumOf(Memory(layer, begin, begin + 1));
    }
  }
  return Status();
}

// ---- reads

// The blocks get memory; those that are stored are read, in runs. Sorts them.
void KvSpill::Read(size_t layer, std::vector<int32_t>& blocks) {
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 0; i < blocks.size();) {
    Run run{.layer = layer, .begin = blocks[i], .end = blocks[i]};
    const auto most = run.begin + static_cast<int32_t>(std::max<int64_t>(kReadBytes / layers_[layer].pitch, 1));
    for (; i < blocks.size() && blocks[i] == run.end && run.end < most && At(layer, run.end).stored; ++i, ++run.end) {
      Gain(layer, run.end);
      At(layer, run.end).reading = true;
    }
    if (run.begin == run.end) {
      Gain(layer, blocks[i++]);
      continue;
    }
    const std::span<uint8_t> memory = Memory(layer, run.begin, run.end);
    runs_.push_back(run);
    ++in_flight_;
    queue_->Submit({.offset = memory.data() - memory_.data(),
                    .bytes = std::ssize(memory),
                    .dst = memory.data(),
                    .tag = runs_.size() - 1});
  }
}

// Waits for all reads, as long as any comes back in time; those that do not stay in flight. The first failure of those
// of the layer in use, or of any when none is.
Status KvSpill::Drain() {
  Status first;
  while (in_flight_ > 0) {
    completions_.clear();
    // Once is enough: as long as nothing comes back, nobody waits again.
    hangs_ = !AwaitReads(*queue_, hangs_ ? std::chrono::milliseconds(0) : options_.read_timeout, completions_);
    if (hangs_) {
      return IoError(fmt::format("the KV cache in {}: {} reads wait, and none has returned for {:.3g} s", file_.path(),
                                 in_flight_, static_cast<double>(options_.read_timeout.count()) / 1e3));
    }
    for (const ReadCompletion& completion : completions_) {
      --in_flight_;
      const Status arrived = Arrived(runs_[completion.tag], completion.status);
      if (first.ok()) first = arrived;
    }
  }
  runs_.clear();
  return first;
}

Status KvSpill::Arrived(const Run& run, const Status& status) {
  Status result = status.WithContext(fmt::format("the KV cache in {}", file_.path()));
  for (int32_t block = run.begin; block < run.end; ++block) {
    Block& it = At(run.layer, block);
    it.reading = false;
    if (result.ok() && it.stored && ChecksumOf(Memory(run.layer, block, block + 1)) != it.checksum) {
      result = DataLossError(fmt::format("the KV cache in {} is corrupt: {} bytes at {} are not what was written",
                                         file_.path(), layers_[run.layer].pitch,
                                         Memory(run.layer, block, block + 1).data() - memory_.data()));
    }
  }
  if (result.ok()) {
    stats_.reloaded_bytes += std::ssize(Memory(run.layer, run.begin, run.end));
  } else {
    Lose(run.layer, run.begin, run.end);
  }
  return result;
}

}  // namespace nunspark
