// Which weights of a pack are stored with sixteen outputs side by side (quant/lanes.h), and the way there and back.
#ifndef NUNSPARK_PACK_PART_ORDER_H_
#define NUNSPARK_PACK_PART_ORDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "formats/manifest.h"
#include "models/model_layout.h"
#include "nunspark/status.h"
#include "pack/pack_options.h"
#include "pack/quantize_plan.h"
#include "quant/encoding.h"

namespace nunspark {

// A part whose tensors are turned while they are written.
struct PartOrder {
  WeightFormat format;  // in rows
  int64_t cols = 0;     // inputs of the matrix
  bool scales = false;  // the part is the scales or biases of a matrix that the source has encoded already
  MatrixOrder to = MatrixOrder::kLanes16;
};

// [pieces][parts of the piece]: nullopt where a part's order stays. kLanes turns what HasLanes says, but for tables
// whose rows are read one by one and matrices that are used otherwise than as the weights of a product; kRows puts what
// the source has in lanes back into rows.
using OrderPlan = std::vector<std::vector<std::optional<PartOrder>>>;
OrderPlan PlanOrders(const ModelLayout& layout, const QuantizePlan& quantize, PackLayout wanted);

// The tensors of a part that is turned, as StoredTensors made them from it: their names and shapes.
void TurnTensors(const PartOrder& order, std::vector<ManifestTensor>& tensors);

// Turns one tensor as it passes: whole tiles of sixteen rows. Memory: two tiles.
class TileTurner {
 public:
  using Sink = std::function<Status(std::span<const uint8_t> bytes)>;

  // `scales`: the tensor holds scales or biases.
  TileTurner(const PartOrder& order, bool scales);

  // Takes the next bytes; hands full tiles to `sink`. The tensor ends with a full tile.
  Status Append(std::span<const uint8_t> bytes, const Sink& sink);

 private:
  void Turn(const uint8_t* tile);

  const PartOrder order_;
  const bool scales_;
  std::vector<uint8_t> tile_;    // the beginning of one that is not complete
  std::vector<uint8_t> turned_;  // whose size is that of a tile
};

}  // namespace nunspark

#endif  // NUNSPARK_PACK_PART_ORDER_H_
