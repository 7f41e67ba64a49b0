#include "pack/pack_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/check.h"
#include "base/read_file.h"
#include "formats/config.h"
#include "formats/content_hash.h"
#include "formats/safetensors.h"
#include "io/file.h"
#include "pack/quantize_rules.h"

namespace nunspark {
namespace {

constexpr std::string_view kSideFiles[] = {
    "tokenizer.json",     "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",         "tokenizer.model",       "added_tokens.json",       "chat_template.jinja",
    "chat_template.json", "generation_config.json"};

// Half of what other readers accept (kMaxSafetensorsHeaderBytes), because sizes are estimated from above anyway.
constexpr int64_t kSplitHeaderBytes = kMaxSafetensorsHeaderBytes / 2;

// Bytes of a tensor's entry in a header, at most.
int64_t HeaderEntryBytes(const ManifestTensor& tensor) {
  return static_cast<int64_t>(tensor.name.size() + 20 * tensor.shape.size()) + 100;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options, PackPlan& plan)
      : checkpoint_(checkpoint), layout_(layout), options_(options), plan_(plan) {}

  Status Run();

 private:
  Status ReadConfig();
  Status ListDropped();
  bool MayBeDropped(std::string_view name) const;
  std::string SourceHash() const;
  void PlanRecord(size_t index);
  void AssignFiles();
  void OpenFile(std::string name);
  void AddToFile(int32_t piece, int64_t header_bytes);
  Status FinishFiles();
  Status ListCopies();
  Status CheckManifestBytes(size_t bytes) const;
  Status Identify();

  const Checkpoint& checkpoint_;
  const ModelLayout& layout_;
  const PackOptions& options_;
  PackPlan& plan_;
  int64_t data_bytes_ = 0;    // of the file that is being filled
  int64_t header_bytes_ = 0;  // of its entries, at most
};

Status Planner::Run() {
  RETURN_IF_ERROR(ListDropped());
  RETURN_IF_ERROR(ReadConfig());
  Manifest& manifest = plan_.manifest;
  ASSIGN_OR_RETURN(plan_.quantize, PlanQuantization(layout_, options_.quantize, manifest.config));
  plan_.orders = PlanOrders(layout_, plan_.quantize, options_.layout);
  manifest.model_type = layout_.spec->name;
  manifest.tie_word_embeddings = layout_.hparams.tied;
  manifest.num_layers = static_cast<int>(layout_.hparams.layers);
  manifest.source_hash = SourceHash();
  manifest.pieces.reserve(layout_.pieces.size());
  for (size_t i = 0; i < layout_.pieces.size(); ++i) PlanRecord(i);
  AssignFiles();
  RETURN_IF_ERROR(FinishFiles());
  RETURN_IF_ERROR(ListCopies());
  return Identify();
}

// The manifest keeps the file as it is, so that opening the pack goes through the same steps as opening the source;
// Checkpoint::config is the outcome of the first of them. Other sources have their config elsewhere.
Status Planner::ReadConfig() {
  const std::string path = JoinPath(checkpoint_.folder, "config.json");
  if (checkpoint_.is_gguf || checkpoint_.is_original_pack || checkpoint_.is_pack) {
    plan_.manifest.config = checkpoint_.config;
    // GGUF has names of its own for types, and tensors named for them no longer say so.
    if (checkpoint_.is_gguf) plan_.manifest.config.Set("model_type", Json(std::string(layout_.spec->name)));
    return Status();
  }
  ASSIGN_OR_RETURN(const std::string text,
                   ReadRegularFile(path, {.max_bytes = kMaxConfigBytes, .limit_reason = kConfigLimitReason}));
  ASSIGN_OR_RETURN(plan_.manifest.config, ParseJson(text, path));
  ASSIGN_OR_RETURN(const Json normalised, NormalizeConfig(plan_.manifest.config, path));
  if (normalised == checkpoint_.config) return Status();
  return DataLossError(fmt::format("{} has changed since the model was opened; run the command again", path));
}

Status Planner::ListDropped() {
  std::vector<std::string_view> lost;
  for (const std::string& name : layout_.ignored) {
    if (name.starts_with(kGapPrefix)) continue;  // a checkpoint made of a pack's files: no weight of anything
    if (MayBeDropped(name)) {
      plan_.dropped.push_back(name);
    } else {
      lost.push_back(name);
    }
  }
  if (lost.empty()) return Status();
  return UnsupportedError(fmt::format("{}: tensor {} has no place in a model of type {}{}; a pack would lose it",
                                      checkpoint_.folder, QuoteName(lost[0]), layout_.spec->name,
                                      lost.size() == 1 ? "" : fmt::format(", nor have {} others", lost.size() - 1)));
}

// Superfluous by the type's own table; a layer beyond num_hidden_layers (kept for multi-token prediction); the head of
// a model whose head is the embedding; another modality beside a wrapped language model.
bool Planner::MayBeDropped(std::string_view name) const {
  constexpr std::string_view kWrapper = "language_model.";
  constexpr std::string_view kLayers = "layers.";
  for (const std::string_view superfluous : layout_.spec->ignored) {
    if (name.find(superfluous) != std::string_view::npos) return true;
  }
  const TensorIndex& tensors = checkpoint_.tensors;
  const bool wrapped = tensors.Find("model.embed_tokens.weight") == nullptr &&
                       tensors.Find("language_model.model.embed_tokens.weight") != nullptr;
  if (wrapped) {
    if (!name.starts_with(kWrapper)) return true;
    name.remove_prefix(kWrapper.size());
  }
  if (layout_.hparams.tied && name.starts_with("lm_head.")) return true;
  if (name.starts_with("model.")) name.remove_prefix(6);
  if (!name.starts_with(kLayers)) return false;
  int64_t layer = -1;
  const std::from_chars_result parsed = std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return parsed.ec == std::errc() && layer >= layout_.hparams.layers;
}

// The same source under other rules is another model: what was computed with one is no use to the other.
std::string Planner::SourceHash() const {
  if (options_.quantize.empty()) return checkpoint_.source_hash;
  ContentHash hash;
  hash.Update(checkpoint_.source_hash + "\n");
  for (const QuantizeRule& rule : options_.quantize) hash.Update(QuantizeRuleText(rule) + "\n");
  return hash.Hex();
}

// Tensors at multiples of 64 bytes, the record a multiple of the alignment. Also a record without bytes takes one unit.
void Planner::PlanRecord(size_t index) {
  const PieceLayout& piece = layout_.pieces[index];
  ManifestPiece& record = plan_.manifest.pieces.emplace_back();
  record.piece_id = piece.id;
  record.tensors.reserve(piece.parts.size());
  int64_t at = 0;
  for (size_t i = 0; i < piece.parts.size(); ++i) {
    for (ManifestTensor& tensor : PackedTensors(plan_, layout_, index, i)) {
      at = AlignUp(at, kPackTensorAlignment);
      tensor.offset = at;
      at += tensor.bytes;
      record.tensors.push_back(std::move(tensor));
    }
  }
  record.bytes = std::max(AlignUp(at, plan_.manifest.alignment), plan_.manifest.alignment);
}

void Planner::AssignFiles() {
  OpenFile(std::string(kPackCoreFile));
  const auto entry_bytes = [&](size_t piece) {
    int64_t bytes = 0;
    // Each tensor with a gap behind it.
    for (const ManifestTensor& tensor : plan_.manifest.pieces[piece].tensors) bytes += HeaderEntryBytes(tensor) + 100;
    return bytes + 100;
  };
  for (size_t i = 0; i < layout_.pieces.size(); ++i) {
    if (layout_.pieces[i].kind != PieceKind::kExpert) AddToFile(static_cast<int32_t>(i), entry_bytes(i));
  }
  int experts_file = 0;
  for (size_t i = 0; i < layout_.pieces.size(); ++i) {
    if (layout_.pieces[i].kind != PieceKind::kExpert) continue;
    const int64_t header = entry_bytes(i);
    const bool full = data_bytes_ + plan_.manifest.pieces[i].bytes > options_.split_bytes ||
                      header_bytes_ + header > kSplitHeaderBytes;
    if (experts_file == 0 || (full && data_bytes_ > 0)) {
      OpenFile(fmt::format("model-experts-{:05}.safetensors", ++experts_file));
    }
    AddToFile(static_cast<int32_t>(i), header);
  }
}

void Planner::OpenFile(std::string name) {
  plan_.files.emplace_back();
  plan_.manifest.files.push_back({.path = std::move(name)});
  data_bytes_ = 0;
  header_bytes_ = 0;
}

void Planner::AddToFile(int32_t piece, int64_t header_bytes) {
  ManifestPiece& record = plan_.manifest.pieces[static_cast<size_t>(piece)];
  record.file = static_cast<int32_t>(plan_.files.size()) - 1;
  record.offset = data_bytes_;  // from the data's start, until FinishFiles knows the header's size
  plan_.files.back().pieces.push_back(piece);
  data_bytes_ += record.bytes;
  header_bytes_ += header_bytes;
}

Status Planner::FinishFiles() {
  int64_t gap = 0;
  for (size_t i = 0; i < plan_.files.size(); ++i) {
    PlannedFile& planned = plan_.files[i];
    SourceFile& file = plan_.manifest.files[i];
    planned.first_gap = gap;
    const std::string header = PackedFileHeader(plan_, static_cast<int32_t>(i));
    planned.header_bytes = static_cast<int64_t>(header.size());
    if (planned.header_bytes > kMaxSafetensorsHeaderBytes) {
      return UnsupportedError(fmt::format("{}: {} would have a header of {} bytes; other readers accept {} at most",
                                          checkpoint_.folder, file.path, header.size(), kMaxSafetensorsHeaderBytes));
    }
    file.header_hash = Hash64(std::string_view(header).substr(8));
    file.bytes = planned.header_bytes;
    for (const int32_t piece : planned.pieces) {
      ManifestPiece& record = plan_.manifest.pieces[static_cast<size_t>(piece)];
      record.offset += planned.header_bytes;
      file.bytes = record.offset + record.bytes;
      int64_t end = 0;
      for (const ManifestTensor& tensor : record.tensors) {
        gap += tensor.offset > end ? 1 : 0;
        end = tensor.offset + tensor.bytes;
      }
      gap += record.bytes > end ? 1 : 0;
    }
    plan_.total_bytes += file.bytes;
  }
  return Status();
}

Status Planner::ListCopies() {
  for (const std::string_view name : kSideFiles) {
    if (options_.side_files == SideFiles::kGenerated) break;
    // The metadata of a GGUF model say what ends a text.
    if (checkpoint_.is_gguf && name == "generation_config.json") continue;
    const std::string path = JoinPath(checkpoint_.folder, name);
    if (!FileExists(path)) continue;
    ASSIGN_OR_RETURN(const File file, File::OpenRead(path));
    ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
    std::string start(static_cast<size_t>(std::min<int64_t>(bytes, 64)), '\0');
    RETURN_IF_ERROR(file.ReadAt(0, {reinterpret_cast<uint8_t*>(start.data()), start.size()}));
    if (IsLfsPointer(start)) return LfsPointerError(path);
    ASSIGN_OR_RETURN(FileChecksum copy, MakeFileChecksum(checkpoint_.folder, std::string(name), bytes));
    plan_.copies.push_back(std::move(copy));
    plan_.total_bytes += bytes;
  }
  for (const auto& [name, content] : options_.generated_files) {
    CHECK(std::find(std::begin(kSideFiles), std::end(kSideFiles), name) != std::end(kSideFiles));
    const auto same = [&name = name](const FileChecksum& copy) { return copy.name == name; };
    if (std::any_of(plan_.copies.begin(), plan_.copies.end(), same)) continue;
    const auto bytes = static_cast<int64_t>(content.size());
    plan_.generated.push_back({.name = name, .bytes = bytes, .checksum = ChecksumOf(content)});
    plan_.total_bytes += bytes;
  }
  return Status();
}

// Found out now, not after hours of packing, when the pack is opened. `bytes` are those without checksums.
Status Planner::CheckManifestBytes(size_t bytes) const {
  constexpr int64_t kChecksumBytes = kChecksumPrefix.size() + 32;
  const auto pieces = static_cast<int64_t>(plan_.manifest.pieces.size());
  const int64_t total = static_cast<int64_t>(bytes) + pieces * kChecksumBytes;
  if (total <= kMaxManifestBytes) return Status();
  return UnsupportedError(fmt::format(
      "{}: the manifest of its pack would have {} bytes for {} pieces, expected at most {}, {}; run it from "
      "the checkpoint instead",
      checkpoint_.folder, total, pieces, kMaxManifestBytes, kManifestLimitReason));
}

// The source hash knows names, sizes and headers; the files' times tell most other changes.
Status Planner::Identify() {
  const std::string manifest = WriteManifest(plan_.manifest);
  RETURN_IF_ERROR(CheckManifestBytes(manifest.size()));
  ContentHash hash;
  hash.Update(manifest);
  hash.Update(WriteChecksums(plan_.copies));
  hash.Update(WriteChecksums(plan_.generated));
  for (const SourceFile& file : checkpoint_.tensors.files()) {
    struct stat info = {};
    if (::stat(file.path.c_str(), &info) != 0) return ErrnoStatus(errno, "opening", file.path);
    if (info.st_size != file.bytes) {
      return DataLossError(fmt::format("{} has changed since the model was opened: expected {} bytes, found {}",
                                       file.path, file.bytes, info.st_size));
    }
    hash.Update(fmt::format("{}.{:09}\n", info.st_mtim.tv_sec, info.st_mtim.tv_nsec));
  }
  plan_.identity = hash.Hex();
  return Status();
}

}  // namespace

std::span<const std::string_view> PackedSideFiles() { return kSideFiles; }

std::vector<ManifestTensor> PackedTensors(const PackPlan& plan, const ModelLayout& layout, size_t piece, size_t part) {
  std::vector<ManifestTensor> tensors =
      StoredTensors(layout.pieces[piece].parts[part], plan.quantize.EncodingOf(piece, part));
  if (const std::optional<PartOrder>& order = plan.orders[piece][part]) TurnTensors(*order, tensors);
  return tensors;
}

Result<PackPlan> MakePackPlan(const Checkpoint& checkpoint, const ModelLayout& layout, const PackOptions& options) {
  const int64_t alignment = options.alignment;
  if (alignment < kMinPackAlignment || alignment > kMaxPackAlignment || (alignment & (alignment - 1)) != 0) {
    return InvalidArgumentError(fmt::format("alignment of a pack: expected a power of two from {} to {}, found {}",
                                            kMinPackAlignment, kMaxPackAlignment, alignment));
  }
  if (options.split_bytes < alignment) {
    return InvalidArgumentError(fmt::format("size of a pack's files: expected at least the alignment {}, found {}",
                                            alignment, options.split_bytes));
  }
  PackPlan plan;
  plan.manifest.alignment = alignment;
  RETURN_IF_ERROR(Planner(checkpoint, layout, options, plan).Run());
  return plan;
}

std::string PackedFileHeader(const PackPlan& plan, int32_t file) {
  const PlannedFile& planned = plan.files[static_cast<size_t>(file)];
  std::vector<TensorInfo> entries;
  int64_t gap = planned.first_gap;
  const auto fill = [&](int64_t bytes) {
    if (bytes == 0) return;
    entries.push_back(
        {.name = fmt::format("{}{:06}", kGapPrefix, gap++), .dtype = DType::kU8, .shape = {bytes}, .bytes = bytes});
  };
  for (const int32_t piece : planned.pieces) {
    const ManifestPiece& record = plan.manifest.pieces[static_cast<size_t>(piece)];
    int64_t end = 0;
    for (const ManifestTensor& tensor : record.tensors) {
      fill(tensor.offset - end);
      entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes});
      end = tensor.offset + tensor.bytes;
    }
    fill(record.bytes - end);
  }
  return WriteSafetensorsHeader(entries, plan.manifest.alignment);
}

}  // namespace nunspark
