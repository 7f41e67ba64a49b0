#include "cli/synthetic_model.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/half.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/size.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "formats/checkpoint.h"
#include "io/file.h"
#include "io/file_system.h"
#include "kv/kv_spill.h"
#include "models/model_layout.h"
#include "pack/packer.h"

namespace nunspark::cli {
namespace {

constexpr SyntheticShape kShapes[] = {
    {"30b-a3b", "Qwen3-30B-A3B", 48, 2048, 128, 8, 768, 32, 4, 128, 151936, 64, 256, 256},
    {"30b-a3b-quarter", "12 of its 48 layers", 12, 2048, 128, 8, 768, 32, 4, 128, 151936, 64, 256, 256},
    {"mini", "a small mixture of experts", 12, 1024, 64, 8, 768, 16, 4, 128, 32768, 64, 128, 128},
    {"dense-mini", "a dense Qwen3 of 1.7 billion weights", 34, 2048, 0, 0, 6144, 16, 8, 128, 32768, 64, 256, 256},
    {"tiny", "nothing: to try this out", 4, 256, 16, 4, 128, 4, 2, 64, 2048, 16, 32, 32}};

constexpr int64_t kGroup = 64;
constexpr int32_t kSpecials = 16;  // the last tokens, which never come
// Powers of two, so that every value is exact in each format.
constexpr float kEmbeddingScale = 0x1p-1f, kHeadScale = 0x1p-7f, kInputScale = 0x1p-8f, kDownScale = 0x1p-13f,
                kAttentionOutScale = 0x1p-14f, kRouterScale = 0x1p-8f;
// Shares of the routers' variance, correlation of a part with that of the token before, and its levels per unit.
constexpr float kConstantShare = 0.25f, kSlowShare = 0.35f, kFastShare = 0.40f;
constexpr float kSlowCorrelation = 0.98f, kFastCorrelation = 0.25f, kLevelsPerUnit = 2.5f;
constexpr int32_t kConstantLevel = 3;
// Matrices are slices of one pool of random levels; so many elements lie between the earliest and the latest start.
constexpr int64_t kPoolSpread = 1 << 20;

enum class Draw : uint32_t { kCycle, kIdentity, kConstant, kSlow, kFast, kRouter, kWeights, kSmallWeights, kOffset };

// Random words of one purpose and place.
class Words {
 public:
  Words(Draw draw, uint64_t place) : draw_(static_cast<uint32_t>(draw)), place_(place) {}

  uint32_t Next() {
    if (used_ == 4) {
      words_ = Philox({block_++, draw_, static_cast<uint32_t>(place_), static_cast<uint32_t>(place_ >> 32)},
                      {0x6e756e73, 0x7061726b});
      used_ = 0;
    }
    return words_[used_++];
  }

  // Near enough to a normal distribution: a sum of four uniform numbers, scaled to a variance of one. Without any
  // function of the C library, so that every machine has the same.
  float Normal() {
    const uint32_t a = Next(), b = Next();
    const auto sum = static_cast<int32_t>((a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16));
    return static_cast<float>(sum - 2 * 0xffff) * (1.0f / 37837.2f);
  }

 private:
  uint32_t draw_;
  uint64_t place_;
  uint32_t block_ = 0;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
};

int32_t WordCount(const SyntheticShape& shape) { return shape.vocab - kSpecials; }

// The cycle: token at each place.
std::vector<int32_t> CycleOf(const SyntheticShape& shape) {
  std::vector<int32_t> cycle(static_cast<size_t>(WordCount(shape)));
  std::iota(cycle.begin(), cycle.end(), 0);
  Words words(Draw::kCycle, 0);
  for (size_t i = cycle.size() - 1; i > 0; --i) {
    std::swap(cycle[i], cycle[static_cast<size_t>(uint64_t{words.Next()} * (i + 1) >> 32)]);
  }
  return cycle;
}

int8_t Level(float value, float most) { return static_cast<int8_t>(std::clamp(std::nearbyint(value), -most, most)); }

// A tensor of the file: where its bytes come from.
using Sink = std::function<Status(std::span<const uint8_t>)>;
struct Tensor {
  std::string name;
  const char* dtype;
  std::vector<int64_t> shape;
  int64_t bytes;
  std::function<Status(const Sink&)> write;
};

class Writer {
 public:
  explicit Writer(const SyntheticShape& shape) : shape_(shape), place_(static_cast<size_t>(shape.vocab), -1) {
    ListTensors();
  }

  int64_t bytes() const {
    return std::accumulate(tensors_.begin(), tensors_.end(), int64_t{0},
                           [](int64_t sum, const Tensor& tensor) { return sum + tensor.bytes; });
  }

  Status Write(const std::string& folder, const std::function<bool(int64_t, int64_t)>& progress) {
    MakeTables();
    RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, "config.json"), WriteJson(Config(), 2) + "\n"));
    ASSIGN_OR_RETURN(File file, File::Create(JoinPath(folder, "model.safetensors")));
    const std::string header = Header();
    int64_t at = 0;
    const int64_t total = bytes();
    const Sink sink = [&](std::span<const uint8_t> data) {
      RETURN_IF_ERROR(file.WriteAt(at, data));
      at += std::ssize(data);
      return progress(std::min(at, total), total) ? Status() : CancelledError("stopped");
    };
    RETURN_IF_ERROR(sink({reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
    for (const Tensor& tensor : tensors_) RETURN_IF_ERROR(tensor.write(sink));
    return Status();
  }

 private:
  // ---- what there is

  void ListTensors() {
    const int64_t dim = shape_.model_dim, q_dim = int64_t{shape_.heads} * shape_.head_dim,
                  kv_dim = int64_t{shape_.kv_heads} * shape_.head_dim;
    Table("model.embed_tokens", kEmbeddingScale, [this](int32_t token) { return place_[static_cast<size_t>(token)]; });
    for (int32_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string name = fmt::format("model.layers.{}.", layer);
      const std::string attention = name + "self_attn.";
      Ones(name + "input_layernorm.weight", dim);
      Ones(name + "post_attention_layernorm.weight", dim);
      Ones(attention + "q_norm.weight", shape_.head_dim);
      Ones(attention + "k_norm.weight", shape_.head_dim);
      Matrices(attention + "q_proj", 0, q_dim, dim, kInputScale, layer, 1);
      Matrices(attention + "k_proj", 0, kv_dim, dim, kInputScale, layer, 2);
      Matrices(attention + "v_proj", 0, kv_dim, dim, kInputScale, layer, 3);
      Matrices(attention + "o_proj", 0, dim, q_dim, kAttentionOutScale, layer, 4);
      const std::string ffn = name + (shape_.experts > 0 ? "mlp.switch_mlp." : "mlp.");
      if (shape_.experts > 0) Router(name + "mlp.gate", layer);
      Matrices(ffn + "gate_proj", shape_.experts, shape_.ffn_dim, dim, kInputScale, layer, 5);
      Matrices(ffn + "up_proj", shape_.experts, shape_.ffn_dim, dim, kInputScale, layer, 6);
      Matrices(ffn + "down_proj", shape_.experts, dim, shape_.ffn_dim, kDownScale, layer, 7);
    }
    Ones("model.norm.weight", dim);
    Table("lm_head", kHeadScale, [this](int32_t token) {
      const int32_t place = place_[static_cast<size_t>(token)];
      return place < 0 ? -1 : (place + WordCount(shape_) - 1) % WordCount(shape_);
    });
  }

  Json Config() const {
    Json::Object base{{"group_size", kGroup}, {"bits", 4}, {"mode", "affine"}};
    for (int32_t layer = 0; shape_.experts > 0 && layer < shape_.layers; ++layer) {
      base.emplace_back(fmt::format("model.layers.{}.mlp.gate", layer),
                        Json::Object{{"group_size", kGroup}, {"bits", 8}});
    }
    const bool moe = shape_.experts > 0;
    Json config(Json::Object{{"architectures", Json::Array{moe ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM"}},
                             {"model_type", moe ? "qwen3_moe" : "qwen3"},
                             {"hidden_size", shape_.model_dim},
                             {"num_hidden_layers", shape_.layers},
                             {"num_attention_heads", shape_.heads},
                             {"num_key_value_heads", shape_.kv_heads},
                             {"head_dim", shape_.head_dim},
                             {"intermediate_size", moe ? 3 * shape_.model_dim : shape_.ffn_dim},
                             {"vocab_size", shape_.vocab},
                             {"rms_norm_eps", 1e-6},
                             {"rope_theta", 1e6},
                             {"max_position_embeddings", 40960},
                             {"tie_word_embeddings", false},
                             {"attention_bias", false},
                             {"hidden_act", "silu"},
                             {"eos_token_id", WordCount(shape_)},
                             {"torch_dtype", "bfloat16"},
                             {"quantization", std::move(base)}});
    if (moe) {
      config.Set("num_experts", shape_.experts);
      config.Set("num_experts_per_tok", shape_.experts_per_token);
      config.Set("moe_intermediate_size", shape_.ffn_dim);
      config.Set("norm_topk_prob", true);
      config.Set("decoder_sparse_step", 1);
      config.Set("mlp_only_layers", Json::Array{});
    }
    return config;
  }

  std::string Header() const {
    Json::Object header{{"__metadata__", Json::Object{{"format", "mlx"}}}};
    int64_t at = 0;
    for (const Tensor& tensor : tensors_) {
      Json::Array shape;
      for (const int64_t size : tensor.shape) shape.emplace_back(size);
      header.emplace_back(tensor.name, Json::Object{{"dtype", tensor.dtype},
                                                    {"shape", std::move(shape)},
                                                    {"data_offsets", Json::Array{at, at + tensor.bytes}}});
      at += tensor.bytes;
    }
    std::string text = WriteJson(header);
    text.append((8 - text.size() % 8) % 8, ' ');
    std::string size(8, '\0');
    for (size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(text.size() >> (8 * i));
    return size + text;
  }

  // ---- kinds of tensors

  void Ones(const std::string& name, int64_t count) {
    tensors_.push_back({name, "BF16", {count}, 2 * count, [count](const Sink& sink) { return Fill(sink, 1, count); }});
  }

  static Status Fill(const Sink& sink, float value, int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(2 * count));
    const uint16_t bits = FloatToBf16(value);
    for (size_t i = 0; i < bytes.size(); i += 2) {
      bytes[i] = static_cast<uint8_t>(bits);
      bytes[i + 1] = static_cast<uint8_t>(bits >> 8);
    }
    return sink(bytes);
  }

  // Scales and biases of `experts` (0: one, without that dimension) matrices; levels count from -2^(bits-1).
  void Scales(const std::string& name, int64_t experts, int64_t rows, int64_t cols, float scale, int bits) {
    const int64_t one = rows * cols / kGroup, count = std::max<int64_t>(experts, 1);
    std::vector<int64_t> shape = {rows, cols / kGroup};
    if (experts > 0) shape.insert(shape.begin(), experts);
    const float bias = -scale * static_cast<float>(1 << (bits - 1));
    for (const auto& [part, value] : {std::pair{".scales", scale}, std::pair{".biases", bias}}) {
      tensors_.push_back({name + part, "BF16", shape, 2 * one * count, [one, count, v = value](const Sink& sink) {
                            for (int64_t i = 0; i < count; ++i) RETURN_IF_ERROR(Fill(sink, v, one));
                            return Status();
                          }});
    }
  }

  // 4-bit matrices from the pool.
  void Matrices(const std::string& name, int64_t experts, int64_t rows, int64_t cols, float scale, int32_t layer,
                int32_t which) {
    const int64_t elements = rows * cols, count = std::max<int64_t>(experts, 1);
    largest_ = std::max(largest_, elements);
    std::vector<int64_t> shape = {rows, cols / 8};
    if (experts > 0) shape.insert(shape.begin(), experts);
    const bool small = which == 4;
    tensors_.push_back({name + ".weight", "U32", shape, elements / 2 * count,
                        [this, elements, count, layer, which, small](const Sink& sink) {
                          const std::vector<uint8_t>& pool = small ? small_pool_ : pool_;
                          for (int64_t i = 0; i < count; ++i) {
                            Words words(Draw::kOffset, (static_cast<uint64_t>(layer) << 32) |
                                                           (static_cast<uint64_t>(which) << 24) |
                                                           static_cast<uint64_t>(i));
                            const size_t start = words.Next() % (kPoolSpread / kGroup) * (kGroup / 2);
                            RETURN_IF_ERROR(sink({pool.data() + start, static_cast<size_t>(elements / 2)}));
                          }
                          return Status();
                        }});
    Scales(name, experts, rows, cols, scale, 4);
  }

  // Embedding or head: rows are those of places of the cycle; zeros for place -1.
  void Table(const std::string& name, float scale, std::function<int32_t(int32_t)> place_of) {
    const int64_t rows = shape_.vocab, cols = shape_.model_dim;
    tensors_.push_back({name + ".weight",
                        "U32",
                        {rows, cols / 8},
                        rows * cols / 2,
                        [this, cols, place_of = std::move(place_of)](const Sink& sink) {
                          constexpr int32_t kRowsAtOnce = 1024;
                          std::vector<int8_t> levels(static_cast<size_t>(cols));
                          std::vector<uint8_t> bytes;
                          for (int32_t token = 0; token < shape_.vocab; ++token) {
                            Row(place_of(token), levels);
                            for (size_t i = 0; i < levels.size(); i += 2) {
                              bytes.push_back(static_cast<uint8_t>((levels[i] + 8) | (levels[i + 1] + 8) << 4));
                            }
                            if ((token + 1) % kRowsAtOnce == 0 || token + 1 == shape_.vocab) {
                              RETURN_IF_ERROR(sink(bytes));
                              bytes.clear();
                            }
                          }
                          return Status();
                        }});
    Scales(name, 0, rows, cols, scale, 4);
  }

  void Router(const std::string& name, int32_t layer) {
    const int64_t experts = shape_.experts, cols = shape_.model_dim;
    tensors_.push_back({name + ".weight", "U32", {experts, cols / 4}, experts * cols, [this, layer](const Sink& sink) {
                          return sink(RouterLevels(layer));
                        }});
    Scales(name, 0, experts, cols, kRouterScale, 8);
  }

  // ---- numbers

  void MakeTables() {
    cycle_ = CycleOf(shape_);
    for (size_t i = 0; i < cycle_.size(); ++i) place_[static_cast<size_t>(cycle_[i])] = static_cast<int32_t>(i);
    Words constant(Draw::kConstant, 0);
    for (int32_t i = 0; i < shape_.constant; ++i) {
      constant_.push_back(static_cast<int8_t>((constant.Next() & 1) != 0 ? kConstantLevel : -kConstantLevel));
    }
    slow_ = Walk(Draw::kSlow, shape_.slow, kSlowCorrelation);
    fast_ = Walk(Draw::kFast, shape_.fast, kFastCorrelation);
    const auto elements = static_cast<size_t>(largest_ + kPoolSpread);
    Words words(Draw::kWeights, 0), small(Draw::kSmallWeights, 0);
    pool_.resize(elements / 2);
    small_pool_.resize(elements / 2);
    for (size_t i = 0; i < pool_.size(); ++i) {
      const uint32_t a = words.Next(), b = small.Next();
      // Codes 1 to 15 and 7 to 9: levels of -7 to 7 and -1 to 1.
      const auto code = [](uint32_t bits, uint32_t first, uint32_t count) { return first + (bits * count >> 16); };
      pool_[i] = static_cast<uint8_t>(code(a & 0xffff, 1, 15) | code(a >> 16, 1, 15) << 4);
      small_pool_[i] = static_cast<uint8_t>(code(b & 0xffff, 7, 3) | code(b >> 16, 7, 3) << 4);
    }
  }

  // [places, columns]: an autoregressive process along the cycle, one in each column.
  std::vector<int8_t> Walk(Draw draw, int32_t columns, float correlation) const {
    std::vector<int8_t> levels;
    levels.reserve(cycle_.size() * static_cast<size_t>(columns));
    Words words(draw, 0);
    std::vector<float> state(static_cast<size_t>(columns));
    for (float& value : state) value = words.Normal();
    const float fresh = std::sqrt(1 - correlation * correlation);
    for (size_t place = 0; place < cycle_.size(); ++place) {
      for (float& value : state) {
        value = correlation * value + fresh * words.Normal();
        levels.push_back(Level(value * kLevelsPerUnit, 7));
      }
    }
    return levels;
  }

  // The state after the token at a place. What identifies it comes after the columns that routers see.
  void Row(int32_t place, std::vector<int8_t>& levels) const {
    std::fill(levels.begin(), levels.end(), int8_t{0});
    if (place < 0) return;
    auto out = std::copy(constant_.begin(), constant_.end(), levels.begin());
    out = std::copy_n(slow_.begin() + static_cast<ptrdiff_t>(place) * shape_.slow, shape_.slow, out);
    out = std::copy_n(fast_.begin() + static_cast<ptrdiff_t>(place) * shape_.fast, shape_.fast, out);
    Words words(Draw::kIdentity, static_cast<uint64_t>(place));
    uint32_t bits = 0;
    for (int i = 0; out != levels.end(); ++out, ++i) {
      if (i % 4 == 0) bits = words.Next();
      *out = static_cast<int8_t>(static_cast<int32_t>((bits & 0xff) * 9 >> 8) - 4);
      bits >>= 8;
    }
  }

  std::vector<uint8_t> RouterLevels(int32_t layer) const {
    constexpr float kAmplitude = 2 / kRouterScale;
    const std::pair<int32_t, float> parts[] = {
        {shape_.constant, kAmplitude * std::sqrt(kConstantShare / static_cast<float>(shape_.constant)) *
                              (kLevelsPerUnit / kConstantLevel)},
        {shape_.slow, kAmplitude * std::sqrt(kSlowShare / static_cast<float>(shape_.slow))},
        {shape_.fast, kAmplitude * std::sqrt(kFastShare / static_cast<float>(shape_.fast))}};
    std::vector<uint8_t> codes(static_cast<size_t>(shape_.experts) * static_cast<size_t>(shape_.model_dim), 128);
    Words words(Draw::kRouter, static_cast<uint64_t>(layer));
    for (int32_t expert = 0; expert < shape_.experts; ++expert) {
      size_t at = static_cast<size_t>(expert) * static_cast<size_t>(shape_.model_dim);
      for (const auto& [columns, scale] : parts) {
        for (int32_t i = 0; i < columns; ++i)
          codes[at++] = static_cast<uint8_t>(128 + Level(words.Normal() * scale, 127));
      }
    }
    return codes;
  }

  SyntheticShape shape_;
  std::vector<Tensor> tensors_;
  int64_t largest_ = 0;                         // elements of a matrix
  std::vector<int32_t> cycle_, place_;          // token of a place, place of a token
  std::vector<int8_t> constant_, slow_, fast_;  // [columns], [places, columns]
  std::vector<uint8_t> pool_, small_pool_;      // two levels a byte
};

}  // namespace

std::span<const SyntheticShape> SyntheticShapes() { return kShapes; }

Result<SyntheticShape> FindSyntheticShape(std::string_view name) {
  std::string known;
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == name) return shape;
    known += fmt::format("{}{} ({}, {})", known.empty() ? "" : "; ", shape.name, FormatSize(SyntheticBytes(shape)),
                         shape.like);
  }
  return InvalidArgumentError(fmt::format("--synthetic: '{}' is not one of {}", name, known));
}

std::vector<int32_t> SyntheticTokens(const SyntheticShape& shape, int64_t start, int64_t count) {
  const std::vector<int32_t> cycle = CycleOf(shape);
  std::vector<int32_t> tokens;
  for (int64_t i = start; i < start + count; ++i) tokens.push_back(cycle[static_cast<size_t>(i) % cycle.size()]);
  return tokens;
}

int64_t SyntheticBytes(const SyntheticShape& shape) { return Writer(shape).bytes(); }

Status WriteSyntheticModel(const SyntheticShape& shape, const std::string& folder,
                           const std::function<bool(int64_t, int64_t)>& progress) {
  return Writer(shape).Write(folder, progress);
}

SyntheticPack::Remover::~Remover() {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

Result<SyntheticPack> SyntheticPack::Make(const SyntheticShape& shape, const std::string& keep) {
  SyntheticPack made;
  const std::string below = keep.empty() ? DefaultSpillFolder() : keep;
  const std::string name(shape.name);
  if (!keep.empty()) {
    made.folder_ = JoinPath(keep, name);
    if (FileExists(JoinPath(made.folder_, "manifest.json"))) return made;
    RETURN_IF_ERROR(CreateFolders(keep));
  }
  ASSIGN_OR_RETURN(const FileSystemInfo drive, InspectFileSystem(below));
  const int64_t bytes = SyntheticBytes(shape);
  if (drive.free_bytes < 2 * bytes) {
    return ResourceExhaustedError(fmt::format(
        "--synthetic {} needs {} in {} while it is made, checkpoint and pack, and there are {}; set TMPDIR to "
        "another drive, use --keep with a folder there, or a smaller shape",
        name, FormatSize(2 * bytes), below, FormatSize(drive.free_bytes)));
  }
  std::string pattern = JoinPath(below, "nunspark-synthetic-XXXXXX");
  if (::mkdtemp(pattern.data()) == nullptr) return ErrnoStatus(errno, "creating folder", pattern);
  const auto temporary = std::make_shared<Remover>(pattern);
  const std::string source = JoinPath(pattern, "checkpoint");
  RETURN_IF_ERROR(CreateFolders(source));
  if (keep.empty()) {
    made.folder_ = JoinPath(pattern, name);
    made.temporary_ = temporary;
  }
  Progress writing("writing " + name, ProgressUnit::kBytes);
  RETURN_IF_ERROR(WriteSyntheticModel(shape, source, [&](int64_t done, int64_t total) {
    writing.Update(done, total);
    return !Interrupted();
  }));
  writing.Clear();
  Progress packing("packing " + name, ProgressUnit::kBytes);
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(source));
  ASSIGN_OR_RETURN(const ModelLayout layout, ResolveModel(checkpoint));
  PackOptions options;
  options.out_folder = made.folder_;
  options.progress = [&](int64_t done, int64_t total) {
    packing.Update(done, total);
    return !Interrupted();
  };
  RETURN_IF_ERROR(Pack(checkpoint, layout, options).status());
  packing.Clear();
  std::error_code ignored;
  std::filesystem::remove_all(source, ignored);
  return made;
}

}  // namespace nunspark::cli
