#include "formats/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"

namespace nunspark {
namespace {

constexpr std::string_view kExtension = ".gguf";
// Writers number shards with five digits, so this is also the most that a name can say.
constexpr int64_t kMaxShards = 99999;

// "<prefix>-00002-of-00003.gguf".
struct ShardName {
  std::string prefix;
  int64_t number = 0;  // from 1
  int64_t count = 0;

  std::string Path(int64_t shard) const { return fmt::format("{}-{:05}-of-{:05}{}", prefix, shard, count, kExtension); }
};

std::optional<int64_t> FiveDigits(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole && text.size() == 5 && number > 0 ? std::optional<int64_t>(number) : std::nullopt;
}

std::optional<ShardName> ParseShardName(std::string_view path) {
  constexpr size_t kTail = std::string_view("-00001-of-00001.gguf").size();
  if (path.size() <= kTail || !IsGgufName(path)) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  const std::optional<int64_t> number = FiveDigits(tail.substr(1, 5));
  const std::optional<int64_t> count = FiveDigits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !number.has_value() || !count.has_value()) return std::nullopt;
  if (*number > *count) return std::nullopt;
  return ShardName{.prefix = std::string(path.substr(0, path.size() - kTail)), .number = *number, .count = *count};
}

// A whole number of the metadata, `missing` when the key is not there.
Result<int64_t> SplitNumber(const GgufFile& file, std::string_view key, int64_t missing) {
  const GgufValue* const value = file.Find(key);
  if (value == nullptr) return missing;
  const std::optional<int64_t> number = value->is_array() ? std::nullopt : value->Int();
  if (number.has_value() && *number >= 0) return *number;
  return DataLossError(fmt::format("{}: key {}: expected a whole number, found {}", file.source.path, QuoteName(key),
                                   number.has_value() ? fmt::format("{}", *number) : value->TypeName()));
}

Status CheckSplit(const GgufFile& file, std::string_view key, int64_t expected, int64_t missing, std::string_view why) {
  ASSIGN_OR_RETURN(const int64_t found, SplitNumber(file, key, missing));
  if (found == expected) return Status();
  return DataLossError(
      fmt::format("{}: key {}: expected {} {}, found {}", file.source.path, QuoteName(key), expected, why, found));
}

// Checks that all shards are there before any is read.
Status CheckShards(const ShardName& name) {
  if (name.count > kMaxShards) return DataLossError(fmt::format("{}: more than {} shards", name.prefix, kMaxShards));
  int64_t missing = 0;
  int64_t first_missing = 0;
  for (int64_t shard = 1; shard <= name.count; ++shard) {
    if (FileExists(name.Path(shard))) continue;
    if (missing++ == 0) first_missing = shard;
  }
  if (missing == 0) return Status();
  return DataLossError(fmt::format("{} is missing: expected {} shards, found {}", name.Path(first_missing), name.count,
                                   name.count - missing));
}

// The same tensor could be in two shards as blocks of different types, which the index takes for two names.
Status CheckBlockNames(const TensorIndex& index) {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : index.tensors()) {
    const std::string_view name = std::string_view(tensor.name).substr(0, tensor.name.rfind('@'));
    if (names.insert(name).second) continue;
    return DataLossError(fmt::format("{}: tensor {}: the name occurs twice",
                                     index.files()[static_cast<size_t>(tensor.file)].path, QuoteName(name)));
  }
  return Status();
}

}  // namespace

Status AddGgufTensors(GgufFile& file, TensorIndex& index) {
  const int32_t file_index = index.AddFile(file.source);
  for (GgufTensor& tensor : file.tensors) {
    TensorInfo info{.name = std::move(tensor.name),
                    .dtype = DType::kU8,
                    .shape = std::move(tensor.shape),
                    .file = file_index,
                    .offset = tensor.offset,
                    .bytes = tensor.bytes};
    const GgufTensorType& type = *tensor.type;
    if (type.dtype.has_value()) {
      info.dtype = *type.dtype;
    } else if (!type.suffix.empty()) {
      info.shape.back() = info.shape.back() / type.block_elements * type.block_bytes;
      info.name += fmt::format("@{}", type.suffix);
    } else {
      return UnsupportedError(fmt::format("{}: tensor {}: blocks of type {} cannot be read; expected one of {}",
                                          file.source.path, QuoteName(info.name), type.name, SupportedGgufTypes()));
    }
    RETURN_IF_ERROR(index.AddTensor(std::move(info)));
  }
  file.tensors.clear();
  file.tensors.shrink_to_fit();
  return Status();
}

bool IsGgufName(std::string_view path) { return path.ends_with(kExtension); }

Result<GgufModel> OpenGgufModel(const std::string& path) {
  GgufModel model;
  const std::optional<ShardName> name = ParseShardName(path);
  if (name.has_value()) RETURN_IF_ERROR(CheckShards(*name));
  const int64_t count = name.has_value() ? name->count : 1;
  for (int64_t shard = 0; shard < count; ++shard) {
    model.paths.push_back(name.has_value() ? name->Path(shard + 1) : path);
    ASSIGN_OR_RETURN(GgufFile file, ReadGguf(model.paths.back()));
    const std::string_view why =
        name.has_value() ? "by the file's name" : "(a shard is named PREFIX-00001-of-0000N.gguf)";
    // A file that was never split need not say so.
    RETURN_IF_ERROR(CheckSplit(file, "split.count", count, count == 1 ? 1 : 0, why));
    RETURN_IF_ERROR(CheckSplit(file, "split.no", shard, count == 1 ? 0 : -1, "by the file's name"));
    RETURN_IF_ERROR(AddGgufTensors(file, model.tensors));
    if (shard == 0) model.first = std::move(file);
  }
  RETURN_IF_ERROR(CheckBlockNames(model.tensors));
  const auto total = static_cast<int64_t>(model.tensors.tensors().size());
  if (total == 0) return DataLossError(fmt::format("{}: expected tensors, found none", model.paths.front()));
  RETURN_IF_ERROR(CheckSplit(model.first, "split.tensors.count", total, total, "tensors in all shards together"));
  return model;
}

Result<std::string> FindGgufModel(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::vector<std::string> models;
  std::set<std::string> series;
  for (const std::string& file : names) {
    if (!IsGgufName(file) || file.starts_with("mmproj")) continue;
    const std::optional<ShardName> shard = ParseShardName(file);
    // The first shard that is there stands for all: which ones are missing is for OpenGgufModel to say.
    if (!shard.has_value() || series.insert(shard->Path(0)).second) models.push_back(file);
  }
  if (models.empty()) return std::string();
  if (models.size() == 1) return JoinPath(folder, models.front());
  return InvalidArgumentError(
      fmt::format("{} holds several GGUF models: {}; expected one: give the file's path", folder,
                  fmt::join(models.begin(), models.begin() + std::min<size_t>(models.size(), 8), ", ")));
}

}  // namespace nunspark
