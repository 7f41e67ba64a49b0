#include "hub/file_choice.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/glob.h"
#include "base/parts.h"
#include "base/size.h"
#include "hub/repo_ref.h"

namespace nunspark {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kGguf = ".gguf";
constexpr std::string_view kIndex = "model.safetensors.index.json";

// Beside the weights, all at the top of the repository: what tokenizers, templates and stop tokens are read from.
constexpr std::string_view kTextFiles[] = {"config.json",
                                           "generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "added_tokens.json",
                                           "tiktoken.model",
                                           "chat_template.json"};

bool IsText(std::string_view name) {
  return std::find(std::begin(kTextFiles), std::end(kTextFiles), name) != std::end(kTextFiles) ||
         name.ends_with(".jinja") || name.ends_with(".tiktoken");
}

bool IsAtTop(std::string_view name) { return name.find('/') == std::string_view::npos; }

// "x-00002-of-00003.gguf" -> {"x", 2, 3}.
struct ShardName {
  std::string stem;
  int number = 0;
  int total = 0;
};

std::optional<ShardName> ParseShard(std::string_view name, std::string_view ending) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(ending)) return std::nullopt;
  name.remove_suffix(ending.size());
  if (name.size() <= 2 * kDigits + kOf.size() + 1) return std::nullopt;
  const std::string_view tail = name.substr(name.size() - (2 * kDigits + kOf.size() + 1));
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  ShardName shard{.stem = std::string(name.substr(0, name.size() - tail.size())), .number = 0, .total = 0};
  const auto number = [](std::string_view digits, int& out) {
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && digits[0] != '-';
  };
  if (!number(tail.substr(1, kDigits), shard.number) || !number(tail.substr(tail.size() - kDigits), shard.total) ||
      shard.number < 1 || shard.number > shard.total) {
    return std::nullopt;
  }
  return shard;
}

bool IsGgufWeights(std::string_view name) {
  const std::string lower = AsciiLower(LastPathPart(name));
  return lower.ends_with(kGguf) && !lower.starts_with("mmproj") && lower.find("-mmproj") == std::string::npos &&
         lower.find("imatrix") == std::string::npos;
}

// `tag` stands in `name` between characters that are no letters and digits: "Q4_K" is not in "x-Q4_K_M.gguf".
bool HasTag(std::string_view name, std::string_view tag) {
  const std::string text = AsciiLower(name), wanted = AsciiLower(tag);
  const auto inside = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) return true;
  }
  return false;
}

std::string ListModels(const std::vector<GgufFiles>& models) {
  constexpr size_t kShown = 40;
  std::string text;
  for (size_t i = 0; i < std::min(models.size(), kShown); ++i) {
    text += fmt::format("{}{} ({})", i > 0 ? ", " : "", models[i].name, FormatSize(models[i].bytes));
  }
  if (models.size() > kShown) text += fmt::format(" and {} more", models.size() - kShown);
  return text;
}

// The safetensors files that a checkpoint's reader would open.
std::vector<size_t> WeightFiles(const std::vector<NamedSize>& files) {
  std::vector<size_t> named, numbered, others;
  bool has_index = false;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string& name = files[i].name;
    if (name == kIndex) has_index = true;
    if (!IsAtTop(name) || !name.ends_with(kSafetensors)) continue;
    if (name.starts_with("model")) {
      named.push_back(i);
      if (ParseShard(name, kSafetensors)) numbered.push_back(i);
    } else if (!name.starts_with("consolidated") && !name.starts_with("adapter")) {
      others.push_back(i);
    }
  }
  // An index decides over a single file beside it; without one the single file does.
  if (has_index) return !numbered.empty() ? numbered : !named.empty() ? named : others;
  for (const size_t i : named) {
    if (files[i].name == "model.safetensors") return {i};
  }
  return named;
}

std::string WhatThereIs(const std::vector<NamedSize>& files) {
  std::set<std::string> endings;
  for (const NamedSize& file : files) {
    for (const std::string_view ending : {".safetensors", ".gguf", ".bin", ".pth", ".pt", ".onnx", ".h5", ".msgpack"}) {
      if (file.name.ends_with(ending)) endings.insert(std::string(ending));
    }
  }
  if (endings.empty()) return "it has no weights at all";
  std::string text;
  for (const std::string& ending : endings) text += (text.empty() ? "" : ", ") + ending;
  return "it has only " + text + (endings.contains(".safetensors") ? " of another layout" : "");
}

}  // namespace

std::vector<GgufFiles> GroupGguf(const std::vector<NamedSize>& files) {
  struct Series {
    std::map<int, size_t> shards;  // number -> file
    int total = 0;
  };
  std::map<std::string, Series> series;
  std::vector<GgufFiles> models;
  for (size_t i = 0; i < files.size(); ++i) {
    if (!IsGgufWeights(files[i].name)) continue;
    if (const auto shard = ParseShard(files[i].name, kGguf)) {
      Series& of = series[fmt::format("{}/{}", shard->stem, shard->total)];
      of.shards[shard->number] = i;
      of.total = shard->total;
    } else {
      models.push_back({.name = files[i].name, .shards = {i}, .bytes = files[i].bytes, .complete = true});
    }
  }
  for (const auto& [key, of] : series) {
    GgufFiles model{.name = files[of.shards.begin()->second].name, .shards = {}, .bytes = 0, .complete = false};
    for (const auto& [number, file] : of.shards) {
      model.shards.push_back(file);
      model.bytes += files[file].bytes;
    }
    model.complete = of.shards.size() == static_cast<size_t>(of.total);
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(), [](const GgufFiles& a, const GgufFiles& b) { return a.name < b.name; });
  return models;
}

Result<GgufFiles> ChooseGguf(const std::vector<GgufFiles>& models, std::string_view wanted) {
  std::vector<GgufFiles> fitting;
  const bool pattern = wanted.find_first_of("*?") != std::string_view::npos;
  for (const GgufFiles& model : models) {
    if (model.name == wanted) return model;
    const bool fits = wanted.empty() || (pattern ? GlobMatches(wanted, model.name) : HasTag(model.name, wanted));
    if (fits) fitting.push_back(model);
  }
  // A file's name without its folder, or any shard of a split model, is asked for as exactly.
  if (fitting.size() != 1 && !pattern && !wanted.empty()) {
    for (const GgufFiles& model : models) {
      const auto asked = ParseShard(wanted, kGguf), has = ParseShard(model.name, kGguf);
      if (LastPathPart(model.name) == wanted ||
          (asked && has && asked->stem == has->stem && asked->total == has->total)) {
        return model;
      }
    }
  }
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    return NotFoundError(fmt::format("no GGUF file fits '{}'; there are: {}", wanted, ListModels(models)));
  }
  return InvalidArgumentError(fmt::format("{} GGUF models {}; name one after ':' - {}", fitting.size(),
                                          wanted.empty() ? "are there" : fmt::format("fit '{}'", wanted),
                                          ListModels(fitting)));
}

bool IsWholeCheckpoint(const std::vector<NamedSize>& files) {
  const bool config =
      std::any_of(files.begin(), files.end(), [](const NamedSize& file) { return file.name == "config.json"; });
  const std::vector<size_t> weights = WeightFiles(files);
  if (!config || weights.empty()) return false;
  std::map<std::string, int> missing;
  for (const size_t i : weights) {
    const auto shard = ParseShard(files[i].name, kSafetensors);
    if (!shard) continue;
    const auto [entry, added] = missing.try_emplace(fmt::format("{}/{}", shard->stem, shard->total), shard->total);
    --entry->second;
  }
  return std::all_of(missing.begin(), missing.end(), [](const auto& series) { return series.second == 0; });
}

Result<FileChoice> ChooseFiles(const std::vector<NamedSize>& files, std::string_view wanted) {
  FileChoice choice;
  const std::vector<GgufFiles> models = GroupGguf(files);
  const std::vector<size_t> weights = WeightFiles(files);
  const bool config =
      std::any_of(files.begin(), files.end(), [](const NamedSize& file) { return file.name == "config.json"; });
  if (wanted.empty() && config && !weights.empty()) {
    choice.files = weights;
    for (size_t i = 0; i < files.size(); ++i) {
      if (IsAtTop(files[i].name) && (IsText(files[i].name) || files[i].name == kIndex)) choice.files.push_back(i);
    }
    std::sort(choice.files.begin(), choice.files.end());
    return choice;
  }
  if (models.empty()) {
    return NotFoundError(fmt::format("expected config.json and model*.safetensors, or .gguf files; {}{}",
                                     WhatThereIs(files), wanted.empty() ? "" : ", and files are chosen of GGUF only"));
  }
  ASSIGN_OR_RETURN(const GgufFiles model, ChooseGguf(models, wanted));
  if (!model.complete) {
    return NotFoundError(fmt::format("shards of {} are missing: found {}", model.name, model.shards.size()));
  }
  choice.files = model.shards;
  choice.model = static_cast<int64_t>(model.shards.front());
  return choice;
}

}  // namespace nunspark
