#include "engine/drafter_files.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "decode/draft_network.h"
#include "formats/config.h"
#include "formats/safetensors.h"
#include "io/file.h"
#include "models/arch_spec.h"

namespace nunspark {
namespace {

// The model type under which models/ knows EAGLE heads; their own configuration names none.
constexpr const char* kEagleType = "eagle";

constexpr int64_t kEagleMostPositions = 512;

// What a head without a configuration is taken to have.
Json ConfigOfTarget(const HParams& target) {
  const LayerShape& layer = target.layer.front();
  Json config{Json::Object{}};
  config.Set("hidden_size", target.model_dim);
  config.Set("intermediate_size", layer.ffn_dim);
  config.Set("num_attention_heads", target.heads);
  config.Set("num_key_value_heads", layer.kv_heads);
  config.Set("head_dim", layer.head_dim);
  config.Set("rms_norm_eps", target.rms_epsilon);
  config.Set("vocab_size", target.vocab_size);
  config.Set("rope_theta", target.ropes.front().theta);
  config.Set("max_position_embeddings", std::min(target.max_positions, kEagleMostPositions));
  return config;
}

Result<Json> ReadEagleConfig(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadRegularFile(path, {.max_bytes = kMaxConfigBytes, .limit_reason = kConfigLimitReason}));
  if (IsLfsPointer(text)) return LfsPointerError(path);
  ASSIGN_OR_RETURN(Json config, ParseJson(text, path));
  if (!config.is_object()) {
    return DataLossError(fmt::format("{}: expected an object, found {}", path, config.TypeName()));
  }
  ASSIGN_OR_RETURN(const ArchSpec* const spec, FindArch(kEagleType));
  std::string known;
  for (const ConfigKey& key : spec->config) {
    if (known.find(key.key) == std::string::npos) known += (known.empty() ? "" : ", ") + std::string(key.key);
  }
  for (const Json::Member& member : config.as_object()) {
    const auto is_it = [&](const ConfigKey& key) { return key.key == member.first; };
    if (std::any_of(spec->config.begin(), spec->config.end(), is_it)) continue;
    return DataLossError(
        fmt::format("{}: expected an EAGLE drafter's keys ({}), found {}", path, known, QuoteName(member.first)));
  }
  return config;
}

Status ReadEagleWeights(const std::string& folder, TensorIndex& index) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  std::map<std::string, TensorInfo> tensors;
  for (const std::string& name : names) {
    if (!name.ends_with(".safetensors")) continue;
    ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensorsFile(JoinPath(folder, name)));
    const int32_t number = index.AddFile(std::move(file.source));
    for (TensorInfo& tensor : file.tensors) {
      tensor.file = number;
      tensors.insert_or_assign(tensor.name, tensor);
    }
  }
  if (tensors.empty()) {
    return NotFoundError(fmt::format("{} holds no weights; expected *.safetensors of an EAGLE drafter", folder));
  }
  std::vector<TensorInfo> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  return index.AddTensors(std::move(all));
}

}  // namespace

Result<DrafterFiles> OpenEagleFolder(const std::string& folder, const HParams& target) {
  if (!FolderExists(folder)) {
    return InvalidArgumentError(
        fmt::format("{} is no folder; expected one with an EAGLE drafter's *.safetensors and "
                    "maybe a config.json",
                    folder));
  }
  DrafterFiles files;
  files.checkpoint.folder = folder;
  RETURN_IF_ERROR(ReadEagleWeights(folder, files.checkpoint.tensors));
  const std::string config_path = JoinPath(folder, "config.json");
  if (FileExists(config_path)) {
    ASSIGN_OR_RETURN(files.checkpoint.config, ReadEagleConfig(config_path));
  } else {
    files.checkpoint.config = ConfigOfTarget(target);
  }
  files.checkpoint.config.Set("model_type", kEagleType);
  // The configuration before the tensors: a head made for another model should be refused as that.
  ASSIGN_OR_RETURN(const ArchSpec* const spec, FindArch(kEagleType));
  ASSIGN_OR_RETURN(const HParams hparams, ReadHParams(*spec, files.checkpoint.config, config_path));
  RETURN_IF_ERROR(DraftNetwork::CheckPair(*spec, hparams, target, config_path));
  ASSIGN_OR_RETURN(files.layout, ResolveModel(files.checkpoint));
  return files;
}

bool IsEagleFolder(const std::string& folder) {
  TensorIndex tensors;
  return ReadEagleConfig(JoinPath(folder, "config.json")).ok() && ReadEagleWeights(folder, tensors).ok() &&
         tensors.Find("input_proj.weight") != nullptr;
}

Result<DrafterFiles> OpenAssistant(const std::string& path, const HParams& target) {
  DrafterFiles files;
  ASSIGN_OR_RETURN(files.checkpoint, OpenCheckpoint(path));
  ASSIGN_OR_RETURN(files.layout, ResolveModel(files.checkpoint));
  const ArchSpec& spec = *files.layout.spec;
  if (!IsDrafter(spec)) {
    return InvalidArgumentError(
        fmt::format("{}: expected a model that drafts for others, found one of type {}", path, spec.name));
  }
  RETURN_IF_ERROR(DraftNetwork::CheckPair(spec, files.layout.hparams, target, path));
  return files;
}

}  // namespace nunspark
