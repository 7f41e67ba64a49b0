// WeightSource: the only way the forward pass gets at weights. Models define it, weights/ implements it.
#ifndef NUNSPARK_MODELS_WEIGHT_SOURCE_H_
#define NUNSPARK_MODELS_WEIGHT_SOURCE_H_

#include <cstdint>
#include <span>
#include <utility>

#include "nunspark/status.h"

namespace nunspark {

// Index into ModelLayout::pieces.
using PieceId = int32_t;

class WeightSource;

// How much of a piece has to be in memory.
enum class Arrived : uint8_t {
  kAll,
  kFirstParts,  // of an expert what comes before its down projection; the rest after AwaitRest
};

// Weight memory of one piece, held. Move-only; the destructor gives it back. While a lease lives its piece is never
// evicted or overwritten. Parts are in the order of PieceLayout::parts; any alignment.
class Lease {
 public:
  Lease() = default;
  Lease(WeightSource* owner, PieceId piece, const uint8_t* base, const int64_t* part_offsets,
        Arrived arrived = Arrived::kAll)
      : owner_(owner), piece_(piece), arrived_(arrived), base_(base), part_offsets_(part_offsets) {}
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Release(); }

  bool held() const { return owner_ != nullptr; }
  PieceId piece() const { return piece_; }
  Arrived arrived() const { return arrived_; }  // when it was leased
  const uint8_t* part(int32_t index) const { return base_ + part_offsets_[index]; }
  void Release();

 private:
  WeightSource* owner_ = nullptr;
  PieceId piece_ = -1;
  Arrived arrived_ = Arrived::kAll;
  const uint8_t* base_ = nullptr;
  const int64_t* part_offsets_ = nullptr;
};

struct PassInfo {
  int64_t rows = 1;
  int32_t sequences = 1;         // that the rows are of
  bool starts_sequence = false;  // a row of it is the first of its sequence
};

// The experts that a layer's routing chose for the rows of a pass.
struct RoutedExperts {
  int32_t layer = 0;
  // Distinct, and in the order of the last row that uses them: reads start in this order, and what the last rows used
  // stays longest in memory.
  std::span<const PieceId> pieces;
  std::span<const int32_t> last_rows;     // [pieces] the last row of the pass that uses each
  std::span<const int32_t> row_counts{};  // [pieces] how many use it; empty: one each
};

// Thread-safety: all calls from the one thread that runs the forward pass, except that leases may be released by any.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Waits until the piece is in memory and leases it. Errors: the read's (file, offset, length, errno).
  virtual Result<Lease> Acquire(PieceId piece) = 0;

  // Around a forward pass. A pass that fails is begun and not ended.
  virtual void BeginPass(const PassInfo& pass) = 0;
  virtual void EndPass() = 0;

  // Says which experts a layer needs, before any of them is acquired: reads of missing ones start at once, as far as
  // there is room.
  virtual void Announce(const RoutedExperts& routed) = 0;

  // Leases one of `pieces` (not empty), those in memory first, else whichever arrives first, or with kFirstParts its
  // first parts. Lease::piece says which, Lease::arrived how much of it.
  virtual Result<Lease> AcquireAny(std::span<const PieceId> pieces, Arrived arrived) = 0;

  // Leases one of `pieces` of which that much is in memory, without waiting. Holds nothing when none is.
  virtual Lease AcquireReady(std::span<const PieceId> pieces, Arrived arrived) = 0;

  // How many experts of the next layer the pass should name with Predict; 0: none, it does not pay.
  virtual int32_t PredictionsWanted() = 0;
  // For a prediction: leases the next layer's core if it is in memory, which is no use of it. Else holds nothing.
  virtual Lease Peek(PieceId core) = 0;
  // Names experts that a layer's routing will probably choose, the most probable first. Changes no result.
  virtual void Predict(int32_t layer, std::span<const PieceId> pieces) = 0;

  // Waits until all of a leased piece is in memory. Errors: as of Acquire; the lease is then of no more use.
  virtual Status AwaitRest(const Lease& lease) = 0;

  // Decoded rows of a table (PieceKind::kEmbed, kRowTable), out [rows.size(), its width]. REQUIRES: rows within it.
  virtual Status ReadRows(PieceId table, std::span<const int32_t> rows, float* out) = 0;

 private:
  friend class Lease;
  virtual void Unlease(PieceId piece) = 0;
};

inline Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  owner_ = std::exchange(other.owner_, nullptr);
  piece_ = std::exchange(other.piece_, -1);
  arrived_ = other.arrived_;
  base_ = std::exchange(other.base_, nullptr);
  part_offsets_ = std::exchange(other.part_offsets_, nullptr);
  return *this;
}

inline void Lease::Release() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->Unlease(piece_);
}

}  // namespace nunspark

#endif  // NUNSPARK_MODELS_WEIGHT_SOURCE_H_
