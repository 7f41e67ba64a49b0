// Models made of numbers, for measuring a machine without a model: the sizes of real ones, experts chosen as real
// routers choose them, and a text that is known beforehand.
//
// The tokens lie on a cycle, and each is followed by the next: the head's row of a token is the embedding of the one
// before it, and attention and experts move the state so little that it still finds that row after the last layer.
// Routers see the first columns of the embeddings only: a part that is the same for all (some experts are popular), one
// that changes slowly along the cycle (a topic) and one that changes fast. Their shares are fitted to published figures
// of Qwen3-30B-A3B: consecutive tokens share 38 to 45 % of their experts, an LRU of a quarter of all hits 76 %.
//
// What they are not: the state hardly changes from layer to layer, so predicting the next layer's experts is too easy,
// and the text never repeats, so prompt lookup finds nothing.
#ifndef NUNSPARK_CLI_SYNTHETIC_MODEL_H_
#define NUNSPARK_CLI_SYNTHETIC_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nunspark/status.h"

namespace nunspark::cli {

struct SyntheticShape {
  std::string_view name;
  std::string_view like;  // whose sizes these are
  int32_t layers, model_dim, experts, experts_per_token, ffn_dim, heads, kv_heads, head_dim, vocab;  // 0 experts: dense
  int32_t constant, slow, fast;  // columns that routers see
};

std::span<const SyntheticShape> SyntheticShapes();
// Errors: kInvalidArgument naming those there are.
Result<SyntheticShape> FindSyntheticShape(std::string_view name);

// `count` tokens of the cycle from `start` on: a prompt, or what follows one.
std::vector<int32_t> SyntheticTokens(const SyntheticShape& shape, int64_t start, int64_t count);

// Bytes of its weights: MLX affine, 4 bits in groups of 64, routers 8 bits.
int64_t SyntheticBytes(const SyntheticShape& shape);

// Writes the checkpoint into a folder that is there; the same bytes on every machine. progress: bytes written and to
// write; false cancels. Errors: kResourceExhausted on a full drive, kCancelled, kIo.
Status WriteSyntheticModel(const SyntheticShape& shape, const std::string& folder,
                           const std::function<bool(int64_t done, int64_t total)>& progress);

// A pack of a synthetic model, removed with the object unless it is to be kept.
class SyntheticPack {
 public:
  // keep: a folder that holds or gets the pack "<shape>"; empty: a temporary folder in TMPDIR, else /var/tmp. Errors:
  // kResourceExhausted, before anything is written, when the drive has no room for checkpoint and pack; as above, and
  // the packer's.
  static Result<SyntheticPack> Make(const SyntheticShape& shape, const std::string& keep);

  const std::string& folder() const { return folder_; }

 private:
  struct Remover {
    explicit Remover(std::string folder_to_remove) : folder(std::move(folder_to_remove)) {}
    Remover(const Remover&) = delete;
    ~Remover();
    const std::string folder;
  };

  std::string folder_;
  std::shared_ptr<Remover> temporary_;  // copies of the object share it
};

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_SYNTHETIC_MODEL_H_
