#include "formats/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/parts.h"
#include "base/read_file.h"
#include "formats/config.h"
#include "formats/content_hash.h"
#include "formats/gguf_config.h"
#include "formats/gguf_model.h"
#include "formats/json_fields.h"
#include "formats/manifest.h"
#include "formats/original_pack.h"
#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark {
namespace {

constexpr std::string_view kConfigFile = "config.json";
constexpr std::string_view kGenerationFile = "generation_config.json";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kSingleFile = "model.safetensors";

// Some 500000 tensors; the largest published index, of 92000, has 9 MB.
constexpr ReadFileOptions kIndexLimit{
    .max_bytes = int64_t{64} << 20,
    .limit_reason =
        "the most that an index of shards may have (about 500000 tensors; a model with more can be read "
        "from shards without an index)"};
constexpr ReadFileOptions kConfigLimit{.max_bytes = kMaxConfigBytes, .limit_reason = kConfigLimitReason};
constexpr size_t kMaxShards = 65536;

// "Qwen/Qwen3-0.6B": one slash, only characters that hubs allow.
bool LooksLikeRepositoryId(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view owner = text.substr(0, slash);
  const std::string_view name = text.substr(slash + 1);
  return !owner.empty() && !name.empty() && owner != "." && owner != ".." &&
         owner.find_first_not_of(kAllowed) == std::string_view::npos &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

Status CheckFolder(const std::string& folder) {
  if (FolderExists(folder)) return Status();
  if (FileExists(folder)) {
    return InvalidArgumentError(
        fmt::format("{} is a file; expected a model folder (a pack, or a checkpoint with "
                    "config.json and model*.safetensors)",
                    folder));
  }
  if (LooksLikeRepositoryId(folder)) {
    return NotFoundError(
        fmt::format("no folder {0}; if it is a repository id, download it with 'nunspark pull {0}'", folder));
  }
  return NotFoundError(
      fmt::format("no folder {}; give a model folder (a pack, or a checkpoint with config.json and "
                  "model*.safetensors)",
                  folder));
}

Result<Json> ReadJsonFile(const std::string& path, const ReadFileOptions& limit) {
  ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, limit));
  if (IsLfsPointer(text)) return LfsPointerError(path);
  return ParseJson(text, path);
}

// The tensors of a checkpoint's files into `index`.
class ShardReader {
 public:
  ShardReader(const std::string& folder, TensorIndex& index) : folder_(folder), index_(index) {}

  Status Read();

 private:
  Status ReadIndexed(const std::string& index_path);
  Status ReadAll(const std::vector<std::string>& names);
  Status CheckNumbering(const std::vector<std::string>& names) const;
  Status NoWeights(const std::vector<std::string>& names) const;

  const std::string& folder_;
  TensorIndex& index_;
};

Status ShardReader::Read() {
  const std::string index_path = JoinPath(folder_, kIndexFile);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder_));
  if (std::binary_search(names.begin(), names.end(), kIndexFile)) return ReadIndexed(index_path);
  // As the tools that publish checkpoints do: the single file when there is one, else everything that looks like a
  // part.
  if (std::binary_search(names.begin(), names.end(), kSingleFile)) return ReadAll({std::string(kSingleFile)});
  std::vector<std::string> parts;
  std::copy_if(names.begin(), names.end(), std::back_inserter(parts),
               [](const std::string& name) { return name.starts_with("model") && name.ends_with(".safetensors"); });
  if (parts.empty()) return NoWeights(names);
  if (parts.size() > kMaxShards) return DataLossError(fmt::format("{}: more than {} shards", folder_, kMaxShards));
  RETURN_IF_ERROR(CheckNumbering(parts));
  return ReadAll(parts);
}

Status ShardReader::ReadIndexed(const std::string& index_path) {
  ASSIGN_OR_RETURN(const Json root, ReadJsonFile(index_path, kIndexLimit));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(root, index_path, ""));
  ASSIGN_OR_RETURN(const Json* const map, fields.Object("weight_map"));
  // Shard name -> its tensors by the index.
  std::map<std::string_view, std::set<std::string_view>> shards;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || !IsPlainFileName(shard.as_string())) {
      return DataLossError(fmt::format("{}: weight_map of {}: expected a file name without folders, found {}",
                                       index_path, QuoteName(tensor),
                                       shard.is_string() ? QuoteName(shard.as_string()) : shard.TypeName()));
    }
    shards[shard.as_string()].insert(tensor);
  }
  if (shards.empty() || shards.size() > kMaxShards) {
    return fields.Wrong("weight_map", fmt::format("tensors of 1 to {} shards", kMaxShards),
                        fmt::format("{}", shards.size()));
  }
  for (const auto& [shard, tensors] : shards) {
    const std::string path = JoinPath(folder_, shard);
    if (FileExists(path)) continue;
    const auto present = std::count_if(shards.begin(), shards.end(),
                                       [&](const auto& other) { return FileExists(JoinPath(folder_, other.first)); });
    return DataLossError(fmt::format("{} is missing: expected the {} shards that {} lists, found {}", path,
                                     shards.size(), kIndexFile, present));
  }
  for (const auto& [shard, tensors] : shards) {
    const size_t first = index_.tensors().size();
    const std::string path = JoinPath(folder_, shard);
    RETURN_IF_ERROR(AddSafetensorsFile(path, index_));
    const size_t found = index_.tensors().size() - first;
    for (size_t i = first; i < index_.tensors().size(); ++i) {
      const std::string& name = index_.tensors()[i].name;
      if (tensors.contains(name)) continue;
      const Json* const other = map->Find(name);
      return DataLossError(fmt::format("{} holds tensor {}, which {} {}", path, QuoteName(name), kIndexFile,
                                       other == nullptr ? "does not list" : "places in " + other->as_string()));
    }
    if (found == tensors.size()) continue;
    for (const std::string_view name : tensors) {
      const TensorInfo* const tensor = index_.Find(name);
      if (tensor != nullptr && index_.files()[static_cast<size_t>(tensor->file)].path == path) continue;
      return DataLossError(
          fmt::format("{}: tensor {} is not in it, but {} places it there ({} tensors expected, {} found)", path,
                      QuoteName(name), kIndexFile, tensors.size(), found));
    }
  }
  return Status();
}

Status ShardReader::ReadAll(const std::vector<std::string>& names) {
  for (const std::string& name : names) RETURN_IF_ERROR(AddSafetensorsFile(JoinPath(folder_, name), index_));
  return Status();
}

// Without an index the names alone can tell that a part is missing: model-00001-of-00003.safetensors.
Status ShardReader::CheckNumbering(const std::vector<std::string>& names) const {
  std::map<std::string, std::set<int>> series;  // "model-*-of-00003.safetensors" -> the numbers found
  for (const std::string& name : names) {
    const size_t of = name.rfind("-of-");
    const size_t dash = of == std::string::npos ? std::string::npos : name.rfind('-', of - 1);
    if (dash == std::string::npos) continue;
    int number = 0;
    const char* const end = name.data() + of;
    if (const auto parsed = std::from_chars(name.data() + dash + 1, end, number); parsed.ptr != end) continue;
    series[fmt::format("{}-*{}", name.substr(0, dash), name.substr(of))].insert(number);
  }
  for (const auto& [pattern, numbers] : series) {
    int total = 0;
    const char* const start = pattern.data() + pattern.rfind("-of-") + 4;
    const auto parsed = std::from_chars(start, pattern.data() + pattern.size(), total);
    if (parsed.ec != std::errc() || total < 1 || static_cast<size_t>(total) > kMaxShards) continue;
    for (int number = 1; number <= total; ++number) {
      if (numbers.contains(number)) continue;
      return DataLossError(fmt::format("{}: shard {} of {} is missing: expected {} files {}, found {}", folder_, number,
                                       total, total, pattern, numbers.size()));
    }
  }
  return Status();
}

Status ShardReader::NoWeights(const std::vector<std::string>& names) const {
  const auto gguf = std::find_if(names.begin(), names.end(), IsGgufName);
  const auto some = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".safetensors");
  });
  std::string hint;
  if (gguf != names.end()) {
    hint = fmt::format(" (it has {}: give that file's path to open it instead)", *gguf);
  } else if (some != names.end()) {
    hint = fmt::format(" (it has {}, which is not read)", *some);
  }
  return NotFoundError(
      fmt::format("{} has no model.safetensors, model.safetensors.index.json or model*.safetensors{}", folder_, hint));
}

// Names without their folders: a model keeps its identity when it is moved.
std::string SourceHash(const TensorIndex& index) {
  std::vector<std::string> lines;
  for (const SourceFile& file : index.files()) {
    lines.push_back(fmt::format("{} {} {:016x}\n", JsonQuote(LastPathPart(file.path)), file.bytes, file.header_hash));
  }
  std::sort(lines.begin(), lines.end());
  ContentHash hash;
  for (const std::string& line : lines) hash.Update(line);
  return hash.Hex();
}

Status ReadOriginalPack(std::string_view text, const std::string& path, Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(OriginalManifest manifest, ParseOriginalManifest(text, path));
  checkpoint.is_original_pack = true;
  RETURN_IF_ERROR(AddOriginalFiles(manifest, checkpoint.folder, checkpoint.tensors));
  checkpoint.config = std::move(manifest.config);
  checkpoint.source_hash = SourceHash(checkpoint.tensors);
  return Status();
}

// The manifest's text, which can have hundreds of MB, is gone before the tensors are indexed.
Result<PackIndex> ReadPackIndex(const std::string& path, Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadRegularFile(path, {.max_bytes = kMaxManifestBytes, .limit_reason = kManifestLimitReason}));
  Result<PackIndex> pack = ParsePackIndex(text, path);
  if (pack.status().code() != StatusCode::kUnsupported || !IsOriginalManifest(text)) return pack;
  RETURN_IF_ERROR(ReadOriginalPack(text, path, checkpoint));
  return PackIndex();
}

Status ReadPack(const std::string& path, Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(PackIndex pack, ReadPackIndex(path, checkpoint));
  if (checkpoint.is_original_pack) return Status();
  checkpoint.is_pack = true;
  checkpoint.config = std::move(pack.manifest.config);
  checkpoint.source_hash = std::move(pack.manifest.source_hash);
  RETURN_IF_ERROR(AddPackFiles(pack.manifest, checkpoint.folder, checkpoint.tensors));
  return checkpoint.tensors.AddTensors(std::move(pack.tensors));
}

// `path` is a GGUF file.
Result<Checkpoint> ReadGgufCheckpoint(const std::string& path) {
  ASSIGN_OR_RETURN(GgufModel model, OpenGgufModel(path));
  Checkpoint checkpoint;
  const size_t slash = path.rfind('/');
  checkpoint.folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  checkpoint.is_gguf = true;
  checkpoint.gguf_path = model.paths.front();
  ASSIGN_OR_RETURN(checkpoint.config, GgufConfig(model));
  ASSIGN_OR_RETURN(checkpoint.eos_ids, EosIds(checkpoint.config, checkpoint.gguf_path, nullptr, ""));
  checkpoint.tensors = std::move(model.tensors);
  checkpoint.source_hash = SourceHash(checkpoint.tensors);
  return checkpoint;
}

// The GGUF file to open when `path` is one or a folder that holds one model and no other form of it; else "".
Result<std::string> GgufToOpen(const std::string& path) {
  if (IsGgufName(path) && !FolderExists(path)) return path;
  if (!FolderExists(path) || FileExists(JoinPath(path, kManifestFile)) || FileExists(JoinPath(path, kConfigFile))) {
    return std::string();
  }
  return FindGgufModel(path);
}

Status ReadFolder(Checkpoint& checkpoint) {
  const std::string path = JoinPath(checkpoint.folder, kConfigFile);
  if (!FileExists(path)) {
    return NotFoundError(
        fmt::format("{} has no config.json (of a checkpoint) and no manifest.json (of a pack)", checkpoint.folder));
  }
  ASSIGN_OR_RETURN(checkpoint.config, ReadJsonFile(path, kConfigLimit));
  if (!checkpoint.config.is_object()) {
    return DataLossError(fmt::format("{}: expected an object, found {}", path, checkpoint.config.TypeName()));
  }
  return Status();
}

}  // namespace

Result<Checkpoint> OpenCheckpoint(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufToOpen(folder));
  if (!gguf.empty()) return ReadGgufCheckpoint(gguf);
  RETURN_IF_ERROR(CheckFolder(folder));
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  const std::string manifest_path = JoinPath(folder, kManifestFile);
  const bool is_pack = FileExists(manifest_path);
  RETURN_IF_ERROR(is_pack ? ReadPack(manifest_path, checkpoint) : ReadFolder(checkpoint));
  const std::string config_path = is_pack ? manifest_path + ": config" : JoinPath(folder, kConfigFile);
  // Before the weights: a model that this build cannot read should be refused for its real reason.
  ASSIGN_OR_RETURN(checkpoint.config, NormalizeConfig(std::move(checkpoint.config), config_path));
  ASSIGN_OR_RETURN(checkpoint.quantization, ParseQuantization(checkpoint.config, config_path));

  const std::string generation_path = JoinPath(folder, kGenerationFile);
  Json generation;
  if (FileExists(generation_path)) {
    ASSIGN_OR_RETURN(generation, ReadJsonFile(generation_path, kConfigLimit));
  }
  ASSIGN_OR_RETURN(checkpoint.eos_ids, EosIds(checkpoint.config, config_path,
                                              generation.is_null() ? nullptr : &generation, generation_path));
  if (!is_pack) {
    RETURN_IF_ERROR(ShardReader(checkpoint.folder, checkpoint.tensors).Read());
    checkpoint.source_hash = SourceHash(checkpoint.tensors);
  }
  return checkpoint;
}

}  // namespace nunspark
