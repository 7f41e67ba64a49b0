// Small made-up models for the tests of this folder: right names and shapes, pseudo-random bytes for weights.
#ifndef NUNSPARK_PACK_TEST_MODEL_H_
#define NUNSPARK_PACK_TEST_MODEL_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "io/file.h"
#include "models/model_layout.h"
#include "pack/packer.h"

namespace nunspark {

// kMemory, where the system has it: for tests that pack hundreds of times, where a drive would spend minutes in fsync.
enum class FolderPlace { kDrive, kMemory };

// A folder that is removed with everything in it.
class TempFolder {
 public:
  explicit TempFolder(FolderPlace place = FolderPlace::kDrive) {
    const bool memory = place == FolderPlace::kMemory && ::access("/dev/shm", W_OK) == 0;
    std::string pattern = (memory ? "/dev/shm" : testing::TempDir()) + "/nunspark_pack_XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = std::filesystem::canonical(pattern).string();
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

struct TestTensor {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string RandomBytes(uint64_t seed, int64_t bytes) {
  std::string data(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < data.size(); i += 16) {
    const auto block =
        Philox({static_cast<uint32_t>(i), 0, 0, 0}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t j = 0; j < 16 && i + j < data.size(); ++j)
      data[i + j] = static_cast<char>(block[j / 4] >> (8 * (j % 4)));
  }
  return data;
}

// What a model's tensors look like.
struct TestShape {
  int layers = 4;
  int experts = 0;                     // 0: llama, else qwen3_moe
  bool stacked = true;                 // experts in mlx's stacked form
  std::vector<int> dense_layers = {};  // of a model with experts
  bool tied = false;
  int bits = 0;        // 0: bf16, else MLX affine in groups of 32
  int64_t vocab = 97;  // odd, so that tensors end between multiples of 64 bytes
  int64_t dim = 64;
  int64_t ffn = 128;
  int64_t expert_ffn = 32;
};

struct TestModel {
  Json config;
  std::vector<TestTensor> tensors;
  std::map<std::string, std::string> side_files;

  void Add(std::string name, DType dtype, std::vector<int64_t> shape) {
    const int64_t bytes = *TensorBytes(shape, dtype);
    tensors.push_back({std::move(name), dtype, std::move(shape), RandomBytes(tensors.size() + 1, bytes)});
  }

  // A linear [leading..., rows, cols]: plain, or codes with scales and biases.
  void AddLinear(const std::string& module, int bits, std::vector<int64_t> shape) {
    if (bits == 0) return Add(module + ".weight", DType::kBF16, shape);
    const int64_t cols = shape.back();
    shape.back() = cols * bits / 32;
    Add(module + ".weight", DType::kU32, shape);
    shape.back() = cols / 32;
    Add(module + ".scales", DType::kF16, shape);
    Add(module + ".biases", DType::kF16, shape);
  }

  const TestTensor& tensor(std::string_view name) const {
    for (const TestTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }

  // Tensors [first, last) of the model as the bytes of one safetensors file.
  std::string FileBytes(size_t first, size_t last) const {
    std::vector<TensorInfo> infos;
    std::string data;
    for (size_t i = first; i < last; ++i) {
      const TestTensor& tensor = tensors[i];
      infos.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .bytes = static_cast<int64_t>(tensor.data.size())});
      data += tensor.data;
    }
    return WriteSafetensorsHeader(infos, 8) + data;
  }

  // As a checkpoint folder of one file or several shards.
  void WriteTo(const std::string& folder, size_t shards = 1) const {
    std::filesystem::create_directories(folder);
    const auto write = [&](const std::string& name, std::string_view content) {
      const Status status = WriteFileAtomically(JoinPath(folder, name), content);
      ASSERT_TRUE(status.ok()) << status.message();
    };
    write("config.json", WriteJson(config, 2) + "\n");
    for (const auto& [name, content] : side_files) write(name, content);
    for (size_t i = 0; i < shards; ++i) {
      const std::string name =
          shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards);
      write(name, FileBytes(tensors.size() * i / shards, tensors.size() * (i + 1) / shards));
    }
  }
};

inline TestModel MakeTestModel(const TestShape& shape) {
  TestModel model;
  Json& config = model.config;
  const bool moe = shape.experts > 0;
  config.Set("model_type", moe ? "qwen3_moe" : "llama");
  config.Set("vocab_size", shape.vocab);
  config.Set("hidden_size", shape.dim);
  config.Set("num_hidden_layers", shape.layers);
  config.Set("num_attention_heads", 4);
  config.Set("num_key_value_heads", 2);
  config.Set("head_dim", 16);
  config.Set("intermediate_size", shape.ffn);
  config.Set("rms_norm_eps", 1e-6);
  config.Set("rope_parameters", Json(Json::Object{{"rope_theta", 500000.0}, {"rope_type", "default"}}));
  config.Set("max_position_embeddings", 256);
  config.Set("tie_word_embeddings", shape.tied);
  config.Set("a_key_nobody_knows", Json(Json::Array{1, 2.5, "three", Json()}));
  if (shape.bits > 0) {
    config.Set("quantization", Json(Json::Object{{"group_size", 32}, {"bits", shape.bits}}));
  }
  if (moe) {
    config.Set("num_experts", shape.experts);
    config.Set("num_experts_per_tok", 2);
    config.Set("moe_intermediate_size", shape.expert_ffn);
    config.Set("decoder_sparse_step", 1);
    config.Set("norm_topk_prob", true);
    Json::Array dense;
    for (const int layer : shape.dense_layers) dense.push_back(layer);
    config.Set("mlp_only_layers", Json(std::move(dense)));
  }
  const int bits = shape.bits;
  model.AddLinear("model.embed_tokens", bits, {shape.vocab, shape.dim});
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    model.Add(layer + "input_layernorm.weight", DType::kBF16, {shape.dim});
    model.AddLinear(layer + "self_attn.q_proj", bits, {64, shape.dim});
    model.AddLinear(layer + "self_attn.k_proj", bits, {32, shape.dim});
    model.AddLinear(layer + "self_attn.v_proj", bits, {32, shape.dim});
    model.AddLinear(layer + "self_attn.o_proj", bits, {shape.dim, 64});
    if (moe) model.Add(layer + "self_attn.q_norm.weight", DType::kBF16, {16});
    if (moe) model.Add(layer + "self_attn.k_norm.weight", DType::kBF16, {16});
    model.Add(layer + "post_attention_layernorm.weight", DType::kBF16, {shape.dim});
    const bool dense =
        !moe || std::find(shape.dense_layers.begin(), shape.dense_layers.end(), i) != shape.dense_layers.end();
    if (dense) {
      model.AddLinear(layer + "mlp.gate_proj", bits, {shape.ffn, shape.dim});
      model.AddLinear(layer + "mlp.up_proj", bits, {shape.ffn, shape.dim});
      model.AddLinear(layer + "mlp.down_proj", bits, {shape.dim, shape.ffn});
      continue;
    }
    model.AddLinear(layer + "mlp.gate", bits, {shape.experts, shape.dim});
    for (int e = 0; e < (shape.stacked ? 1 : shape.experts); ++e) {
      const auto add = [&](const char* name, int64_t rows, int64_t cols) {
        if (shape.stacked) {
          model.AddLinear(fmt::format("{}mlp.switch_mlp.{}", layer, name), bits, {shape.experts, rows, cols});
        } else {
          model.AddLinear(fmt::format("{}mlp.experts.{}.{}", layer, e, name), bits, {rows, cols});
        }
      };
      add("gate_proj", shape.expert_ffn, shape.dim);
      add("up_proj", shape.expert_ffn, shape.dim);
      add("down_proj", shape.dim, shape.expert_ffn);
    }
  }
  model.Add("model.norm.weight", DType::kBF16, {shape.dim});
  if (!shape.tied) model.AddLinear("lm_head", bits, {shape.vocab, shape.dim});
  return model;
}

// A gpt_oss as published: two layers of three experts, their weights as blocks, gate and up of all experts in one
// tensor.
inline TestModel MakeGptOss() {
  constexpr int64_t kExperts = 3, kDim = 64, kFfn = 96;
  TestModel model;
  model.config = ParseJson(R"({"model_type":"gpt_oss","vocab_size":97,"hidden_size":64,"num_hidden_layers":2,
      "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"num_local_experts":3,
      "num_experts_per_tok":2,"rms_norm_eps":1e-5,"sliding_window":8,"max_position_embeddings":256,
      "tie_word_embeddings":false,"quantization_config":{"quant_method":"mxfp4"}})",
                           "config")
                     .value();
  model.Add("model.embed_tokens.weight", DType::kBF16, {97, kDim});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    const auto linear = [&](const std::string& name, int64_t rows, int64_t cols) {
      model.Add(at + name + ".weight", DType::kBF16, {rows, cols});
      model.Add(at + name + ".bias", DType::kBF16, {rows});
    };
    for (const char* const norm : {"input_layernorm", "post_attention_layernorm"}) {
      model.Add(at + norm + ".weight", DType::kBF16, {kDim});
    }
    linear("self_attn.q_proj", 64, kDim);
    linear("self_attn.k_proj", 32, kDim);
    linear("self_attn.v_proj", 32, kDim);
    linear("self_attn.o_proj", kDim, 64);
    model.Add(at + "self_attn.sinks", DType::kBF16, {4});
    linear("mlp.router", kExperts, kDim);
    const auto blocks = [&](const std::string& name, int64_t rows, int64_t cols) {
      model.Add(at + "mlp.experts." + name + "_blocks", DType::kU8, {kExperts, rows, cols / 32, 16});
      model.Add(at + "mlp.experts." + name + "_scales", DType::kU8, {kExperts, rows, cols / 32});
      model.Add(at + "mlp.experts." + name + "_bias", DType::kBF16, {kExperts, rows});
    };
    blocks("gate_up_proj", 2 * kFfn, kDim);
    blocks("down_proj", kDim, kFfn);
  }
  model.Add("model.norm.weight", DType::kBF16, {kDim});
  model.Add("lm_head.weight", DType::kBF16, {97, kDim});
  return model;
}

// A folder whose files are links to files in memory: what a checkpoint looks like that never was on a drive.
class MemoryFolder {
 public:
  explicit MemoryFolder(const TestModel& model) {
    Add("config.json", WriteJson(model.config, 2) + "\n");
    for (const auto& [name, content] : model.side_files) Add(name, content);
    Add("model.safetensors", model.FileBytes(0, model.tensors.size()));
  }
  ~MemoryFolder() {
    for (const int fd : fds_) ::close(fd);
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::string& path() const { return links_.path(); }

 private:
  void Add(const std::string& name, std::string_view content) {
    const int fd = ::memfd_create(name.c_str(), MFD_CLOEXEC);
    CHECK(fd >= 0);
    fds_.push_back(fd);
    for (size_t done = 0; done < content.size();) {
      const ssize_t put = ::write(fd, content.data() + done, content.size() - done);
      CHECK(put > 0);
      done += static_cast<size_t>(put);
    }
    std::filesystem::create_symlink(fmt::format("/proc/self/fd/{}", fd), links_ / name);
  }

  TempFolder links_;
  std::vector<int> fds_;
};

// Opens, resolves, packs.
inline Result<PackReport> PackFolder(const std::string& source, const PackOptions& options) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(source));
  ASSIGN_OR_RETURN(const ModelLayout layout, ResolveModel(checkpoint));
  return Pack(checkpoint, layout, options);
}

inline Result<PackReport> PackTo(const std::string& source, const std::string& out) {
  return PackFolder(source, PackOptions{.out_folder = out});
}

// Name -> content of every entry of a folder.
inline std::map<std::string, std::string> FolderContent(const std::string& folder) {
  std::map<std::string, std::string> content;
  const std::vector<std::string> names = ListFolder(folder).value();
  for (const std::string& name : names) {
    const Result<std::string> text = ReadWholeFile(JoinPath(folder, name));
    content[name] = text.ok() ? *text : text.status().message();
  }
  return content;
}

// nullptr when there is none of that id.
inline const ManifestPiece* FindPiece(const Manifest& manifest, std::string_view piece_id) {
  const auto found = std::find_if(manifest.pieces.begin(), manifest.pieces.end(),
                                  [&](const ManifestPiece& piece) { return piece.piece_id == piece_id; });
  return found == manifest.pieces.end() ? nullptr : &*found;
}

// The names alone: a shorter failure message.
inline std::vector<std::string> Names(const std::map<std::string, std::string>& content) {
  std::vector<std::string> names;
  for (const auto& [name, text] : content) names.push_back(name);
  return names;
}

inline std::string PartBytes(const Checkpoint& checkpoint, const TensorSlice& part) {
  const File file = File::OpenRead(checkpoint.tensors.files()[static_cast<size_t>(part.file)].path).value();
  std::string data(static_cast<size_t>(part.bytes), '\0');
  EXPECT_TRUE(file.ReadAt(part.offset, {reinterpret_cast<uint8_t*>(data.data()), data.size()}).ok());
  return data;
}

// The model reads the same from both: dimensions, pieces, formats, bytes. What a pack has turned to lanes is turned
// back.
inline void ExpectSameModel(const std::string& one, const std::string& other) {
  const Result<Checkpoint> a = OpenCheckpoint(one);
  const TempFolder work(FolderPlace::kMemory);
  Result<Checkpoint> b = OpenCheckpoint(other);
  if (b.ok() && b->is_pack) {
    const Result<PackReport> turned = PackFolder(other, {.out_folder = work / "rows", .layout = PackLayout::kRows});
    ASSERT_TRUE(turned.ok()) << turned.status().message();
    b = OpenCheckpoint(work / "rows");
  }
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  const Result<ModelLayout> from = ResolveModel(*a);
  const Result<ModelLayout> to = ResolveModel(*b);
  ASSERT_TRUE(from.ok()) << from.status().message();
  ASSERT_TRUE(to.ok()) << to.status().message();
  EXPECT_EQ(from->spec, to->spec);
  ASSERT_EQ(from->pieces.size(), to->pieces.size());
  for (size_t i = 0; i < from->pieces.size(); ++i) {
    const PieceLayout& p = from->pieces[i];
    const PieceLayout& q = to->pieces[i];
    EXPECT_EQ(p.id, q.id);
    ASSERT_EQ(p.parts.size(), q.parts.size()) << p.id;
    ASSERT_EQ(p.weights.size(), q.weights.size()) << p.id;
    for (size_t k = 0; k < p.parts.size(); ++k) {
      EXPECT_EQ(p.parts[k].name, q.parts[k].name);
      EXPECT_TRUE(PartBytes(*a, p.parts[k]) == PartBytes(*b, q.parts[k])) << p.parts[k].name;
    }
    for (size_t k = 0; k < p.weights.size(); ++k) {
      EXPECT_EQ(p.weights[k].format, q.weights[k].format) << p.id;
      EXPECT_EQ(p.weights[k].rows, q.weights[k].rows) << p.id;
      EXPECT_EQ(p.weights[k].cols, q.weights[k].cols) << p.id;
      EXPECT_EQ(p.weights[k].data, q.weights[k].data) << p.id;
    }
  }
}

}  // namespace nunspark

#endif  // NUNSPARK_PACK_TEST_MODEL_H_
