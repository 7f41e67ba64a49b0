#include "formats/manifest.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "formats/content_hash.h"
#include "formats/json_fields.h"
#include "io/file.h"

namespace nunspark {
namespace {

// Far above any real pack; a manifest that claims more is not worth the memory.
constexpr size_t kMaxFiles = 65536;
constexpr size_t kMaxPieces = size_t{1} << 22;
constexpr int64_t kMaxLayers = 65536;
constexpr size_t kMaxPieceIdBytes = 64;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr int64_t kMaxFileBytes = std::numeric_limits<int64_t>::max() - kMaxPackAlignment;

bool IsPieceId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxPieceIdBytes &&
         id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

// The first repeated name, or an empty view. Sorting, not hashing: hostile names could all share one hash.
template <typename Range, typename Name>
std::string_view FirstTwice(const Range& range, Name name) {
  std::vector<std::string_view> names;
  names.reserve(range.size());
  for (const auto& item : range) names.push_back(name(item));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string_view() : *twice;
}

class ManifestReader {
 public:
  explicit ManifestReader(std::string_view what) : what_(what) {}

  Result<Manifest> Read(const Json& root);

 private:
  Status Bad(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }

  Status CheckVersion(const Json& root) const;
  Status ReadHead(const JsonFields& root);
  Status ReadFiles(const Json::Array& files);
  Status ReadPieces(const Json::Array& pieces);
  Status ReadPiece(const Json& json, size_t index);
  Status ReadTensor(const Json& json, std::string path, ManifestPiece& piece);
  Result<std::vector<int64_t>> ReadShape(const JsonFields& fields) const;
  Status CheckNames() const;
  Status CheckRecords() const;

  std::string_view what_;
  size_t tensor_count_ = 0;
  Manifest manifest_;
};

Result<Manifest> ManifestReader::Read(const Json& root) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(root, what_, ""));
  RETURN_IF_ERROR(CheckVersion(root));
  RETURN_IF_ERROR(fields.RefuseOthers({"format_version", "model_type", "tie_word_embeddings", "num_layers", "alignment",
                                       "source_hash", "config", "files", "pieces"}));
  RETURN_IF_ERROR(ReadHead(fields));
  ASSIGN_OR_RETURN(const Json* const files, fields.Array("files"));
  RETURN_IF_ERROR(ReadFiles(files->as_array()));
  ASSIGN_OR_RETURN(const Json* const pieces, fields.Array("pieces"));
  RETURN_IF_ERROR(ReadPieces(pieces->as_array()));
  RETURN_IF_ERROR(CheckNames());
  RETURN_IF_ERROR(CheckRecords());
  return std::move(manifest_);
}

// Before anything else: a manifest of another version need not have any other field in common with ours.
Status ManifestReader::CheckVersion(const Json& root) const {
  const Json* const version = root.Find("format_version");
  if (version != nullptr && version->is_int() && version->as_int() != kPackFormatVersion) {
    return UnsupportedError(fmt::format("{}: pack format version {} is not known; this build reads version {}", what_,
                                        version->as_int(), kPackFormatVersion));
  }
  const Json* const pieces = root.Find("pieces");
  const bool original = version == nullptr && pieces != nullptr && pieces->is_array() && !pieces->as_array().empty() &&
                        pieces->as_array()[0].Find("keys") != nullptr && pieces->as_array()[0].Find("file") != nullptr;
  if (!original) return Status();
  return UnsupportedError(fmt::format(
      "{}: this pack was written by the original Nunspark (one file per piece); reading those is not built yet; "
      "pack from the checkpoint again with nunspark pack",
      what_));
}

Status ManifestReader::ReadHead(const JsonFields& root) {
  ASSIGN_OR_RETURN(const int64_t version, root.Int("format_version", kPackFormatVersion, kPackFormatVersion));
  manifest_.format_version = static_cast<int>(version);
  ASSIGN_OR_RETURN(manifest_.model_type, root.String("model_type"));
  if (manifest_.model_type.empty()) return root.Wrong("model_type", "a model type", "an empty string");
  ASSIGN_OR_RETURN(manifest_.tie_word_embeddings, root.Bool("tie_word_embeddings"));
  ASSIGN_OR_RETURN(const int64_t layers, root.Int("num_layers", 1, kMaxLayers));
  manifest_.num_layers = static_cast<int>(layers);
  ASSIGN_OR_RETURN(manifest_.alignment, root.Int("alignment", kMinPackAlignment, kMaxPackAlignment));
  if ((manifest_.alignment & (manifest_.alignment - 1)) != 0) {
    return root.Wrong("alignment", "a power of two", fmt::format("{}", manifest_.alignment));
  }
  ASSIGN_OR_RETURN(manifest_.source_hash, root.String("source_hash"));
  if (!IsLowerHex(manifest_.source_hash, 32)) {
    return root.Wrong("source_hash", "32 lower-case hex digits", QuoteName(manifest_.source_hash));
  }
  ASSIGN_OR_RETURN(const Json* const config, root.Object("config"));
  manifest_.config = *config;
  return Status();
}

Status ManifestReader::ReadFiles(const Json::Array& files) {
  if (files.empty() || files.size() > kMaxFiles) {
    return Bad(fmt::format("files: expected 1 to {} files, found {}", kMaxFiles, files.size()));
  }
  for (const Json& json : files) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::Of(json, what_, fmt::format("files[{}]", manifest_.files.size())));
    RETURN_IF_ERROR(fields.RefuseOthers({"name", "bytes", "header_hash"}));
    SourceFile file;
    ASSIGN_OR_RETURN(file.path, fields.String("name"));
    if (!IsPlainFileName(file.path) || !file.path.ends_with(".safetensors")) {
      return fields.Wrong("name", "a file name that ends in .safetensors, without folders", QuoteName(file.path));
    }
    ASSIGN_OR_RETURN(file.bytes, fields.Int("bytes", 1, kMaxFileBytes));
    ASSIGN_OR_RETURN(const std::string hash, fields.String("header_hash"));
    if (!IsLowerHex(hash, 16)) return fields.Wrong("header_hash", "16 lower-case hex digits", QuoteName(hash));
    file.header_hash = std::stoull(hash, nullptr, 16);
    manifest_.files.push_back(std::move(file));
  }
  return Status();
}

Status ManifestReader::ReadPieces(const Json::Array& pieces) {
  if (pieces.empty() || pieces.size() > kMaxPieces) {
    return Bad(fmt::format("pieces: expected 1 to {} pieces, found {}", kMaxPieces, pieces.size()));
  }
  manifest_.pieces.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) RETURN_IF_ERROR(ReadPiece(pieces[i], i));
  return Status();
}

Status ManifestReader::ReadPiece(const Json& json, size_t index) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(json, what_, fmt::format("pieces[{}]", index)));
  RETURN_IF_ERROR(fields.RefuseOthers({"piece_id", "file", "offset", "bytes", "checksum", "tensors"}));
  ManifestPiece piece;
  ASSIGN_OR_RETURN(piece.piece_id, fields.String("piece_id"));
  if (!IsPieceId(piece.piece_id)) {
    return fields.Wrong("piece_id", fmt::format("1 to {} characters of a-z, 0-9 and _", kMaxPieceIdBytes),
                        QuoteName(piece.piece_id));
  }
  ASSIGN_OR_RETURN(const int64_t file, fields.Int("file", 0, static_cast<int64_t>(manifest_.files.size()) - 1));
  piece.file = static_cast<int32_t>(file);
  const int64_t file_bytes = manifest_.files[static_cast<size_t>(file)].bytes;
  // A header comes first, so no record can begin at 0.
  ASSIGN_OR_RETURN(piece.offset, fields.Int("offset", manifest_.alignment, file_bytes));
  ASSIGN_OR_RETURN(piece.bytes, fields.Int("bytes", manifest_.alignment, file_bytes - piece.offset));
  const std::string multiple = fmt::format("a multiple of the alignment {}", manifest_.alignment);
  if (piece.offset % manifest_.alignment != 0) return fields.Wrong("offset", multiple, fmt::format("{}", piece.offset));
  if (piece.bytes % manifest_.alignment != 0) return fields.Wrong("bytes", multiple, fmt::format("{}", piece.bytes));
  ASSIGN_OR_RETURN(piece.checksum, fields.String("checksum"));
  if (!IsChecksum(piece.checksum)) {
    return fields.Wrong("checksum", "\"xxh3:\" and 32 lower-case hex digits", QuoteName(piece.checksum));
  }
  ASSIGN_OR_RETURN(const Json* const tensors, fields.Array("tensors"));
  tensor_count_ += tensors->as_array().size();
  if (tensor_count_ > kMaxTensors) return Bad(fmt::format("expected at most {} tensors, found more", kMaxTensors));
  piece.tensors.reserve(tensors->as_array().size());
  for (size_t i = 0; i < tensors->as_array().size(); ++i) {
    RETURN_IF_ERROR(ReadTensor(tensors->as_array()[i], fmt::format("pieces[{}].tensors[{}]", index, i), piece));
  }
  manifest_.pieces.push_back(std::move(piece));
  return Status();
}

Status ManifestReader::ReadTensor(const Json& json, std::string path, ManifestPiece& piece) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(json, what_, std::move(path)));
  RETURN_IF_ERROR(fields.RefuseOthers({"name", "dtype", "shape", "offset", "bytes"}));
  ManifestTensor tensor;
  ASSIGN_OR_RETURN(tensor.name, fields.String("name"));
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes || tensor.name.starts_with(kGapPrefix)) {
    return fields.Wrong("name", fmt::format("a tensor's name of 1 to {} bytes", kMaxTensorNameBytes),
                        QuoteName(tensor.name));
  }
  ASSIGN_OR_RETURN(const std::string type, fields.String("dtype"));
  const std::optional<DType> dtype = FindDType(type);
  if (!dtype.has_value()) return fields.Wrong("dtype", "an element type of safetensors", QuoteName(type));
  tensor.dtype = *dtype;
  ASSIGN_OR_RETURN(tensor.shape, ReadShape(fields));
  const std::optional<int64_t> bytes = TensorBytes(tensor.shape, tensor.dtype);
  if (!bytes.has_value()) return fields.Wrong("shape", "fewer than 2^63 bytes", ShapeText(tensor.shape));
  ASSIGN_OR_RETURN(tensor.bytes, fields.Int("bytes", *bytes, *bytes));
  ASSIGN_OR_RETURN(tensor.offset, fields.Int("offset", 0, piece.bytes));
  if (tensor.offset % kPackTensorAlignment != 0) {
    return fields.Wrong("offset", fmt::format("a multiple of {}", kPackTensorAlignment),
                        fmt::format("{}", tensor.offset));
  }
  if (tensor.bytes > piece.bytes - tensor.offset) {
    return fields.Wrong("bytes", fmt::format("at most {}, what the record has left", piece.bytes - tensor.offset),
                        fmt::format("{}", tensor.bytes));
  }
  if (!piece.tensors.empty()) {
    const int64_t end = piece.tensors.back().offset + piece.tensors.back().bytes;
    if (tensor.offset < end) {
      return fields.Wrong("offset", fmt::format("at least {}, the end of the tensor before it", end),
                          fmt::format("{}", tensor.offset));
    }
  }
  piece.tensors.push_back(std::move(tensor));
  return Status();
}

Result<std::vector<int64_t>> ManifestReader::ReadShape(const JsonFields& fields) const {
  ASSIGN_OR_RETURN(const Json* const json, fields.Array("shape"));
  if (json->as_array().size() > kMaxTensorRank) {
    return fields.Wrong("shape", fmt::format("at most {} dimensions", kMaxTensorRank),
                        fmt::format("{}", json->as_array().size()));
  }
  std::vector<int64_t> shape;
  for (const Json& dimension : json->as_array()) {
    if (!dimension.is_int() || dimension.as_int() < 0) {
      return fields.Wrong("shape", "integers from 0", dimension.is_int() ? WriteJson(dimension) : dimension.TypeName());
    }
    shape.push_back(dimension.as_int());
  }
  return shape;
}

Status ManifestReader::CheckNames() const {
  if (const std::string_view name =
          FirstTwice(manifest_.files, [](const SourceFile& file) -> std::string_view { return file.path; });
      !name.empty()) {
    return Bad(fmt::format("files: expected every name once, found {} twice", QuoteName(name)));
  }
  if (const std::string_view id =
          FirstTwice(manifest_.pieces, [](const ManifestPiece& piece) -> std::string_view { return piece.piece_id; });
      !id.empty()) {
    return Bad(fmt::format("pieces: expected every piece_id once, found {} twice", QuoteName(id)));
  }
  std::vector<std::string_view> tensors;
  tensors.reserve(tensor_count_);
  for (const ManifestPiece& piece : manifest_.pieces) {
    for (const ManifestTensor& tensor : piece.tensors) tensors.push_back(tensor.name);
  }
  if (const std::string_view name = FirstTwice(tensors, [](std::string_view tensor) { return tensor; });
      !name.empty()) {
    return Bad(fmt::format("pieces: expected every tensor once, found {} twice", QuoteName(name)));
  }
  return Status();
}

// Records cover their file from the first record to the end, so that the checksums of the pieces leave no byte out;
// what comes before the first record is the header, which the checksum file covers.
Status ManifestReader::CheckRecords() const {
  std::vector<const ManifestPiece*> order;
  order.reserve(manifest_.pieces.size());
  for (const ManifestPiece& piece : manifest_.pieces) order.push_back(&piece);
  std::sort(order.begin(), order.end(), [](const ManifestPiece* a, const ManifestPiece* b) {
    return std::tie(a->file, a->offset) < std::tie(b->file, b->offset);
  });
  int32_t file = -1;
  int64_t end = 0;
  const auto check_end = [&]() {
    if (file < 0 || end == manifest_.files[static_cast<size_t>(file)].bytes) return Status();
    const SourceFile& source = manifest_.files[static_cast<size_t>(file)];
    return Bad(fmt::format("pieces: expected records up to the end of {} at {}, found the last one's end at {}",
                           source.path, source.bytes, end));
  };
  for (const ManifestPiece* piece : order) {
    if (piece->file != file) {
      RETURN_IF_ERROR(check_end());
      if (piece->file != file + 1) break;
      file = piece->file;
    } else if (piece->offset != end) {
      return Bad(fmt::format("pieces: expected the record of {} at {}, found {}: {}", piece->piece_id, end,
                             piece->offset,
                             piece->offset < end ? "it overlaps the one before it" : "there is a hole before it"));
    }
    end = piece->offset + piece->bytes;
  }
  RETURN_IF_ERROR(check_end());
  if (file + 1 != static_cast<int32_t>(manifest_.files.size())) {
    return Bad(fmt::format("files: {} holds no piece", manifest_.files[static_cast<size_t>(file) + 1].path));
  }
  return Status();
}

void AppendPiece(const ManifestPiece& piece, std::string& out) {
  out += fmt::format("{{\"piece_id\":{},\"file\":{},\"offset\":{},\"bytes\":{},\"checksum\":{},\"tensors\":[",
                     JsonQuote(piece.piece_id), piece.file, piece.offset, piece.bytes, JsonQuote(piece.checksum));
  bool first = true;
  for (const ManifestTensor& tensor : piece.tensors) {
    out += fmt::format("{}{{\"name\":{},\"dtype\":\"{}\",\"shape\":[{}],\"offset\":{},\"bytes\":{}}}", first ? "" : ",",
                       JsonQuote(tensor.name), DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), tensor.offset,
                       tensor.bytes);
    first = false;
  }
  out += "]}";
}

}  // namespace

Result<const ManifestPiece*> Manifest::FindPiece(std::string_view piece_id) const {
  for (const ManifestPiece& piece : pieces) {
    if (piece.piece_id == piece_id) return &piece;
  }
  return NotFoundError(fmt::format("no piece {} among the {} of this pack", QuoteName(piece_id), pieces.size()));
}

Result<Manifest> ParseManifest(std::string_view text, std::string_view what) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(text, what));
  return ManifestReader(what).Read(root);
}

// One line per file and piece: short enough to store, long enough to read and to search by line.
std::string WriteManifest(const Manifest& manifest) {
  std::string out = "{\n";
  out += fmt::format("\"format_version\": {},\n", manifest.format_version);
  out += fmt::format("\"model_type\": {},\n", JsonQuote(manifest.model_type));
  out += fmt::format("\"tie_word_embeddings\": {},\n", manifest.tie_word_embeddings);
  out += fmt::format("\"num_layers\": {},\n", manifest.num_layers);
  out += fmt::format("\"alignment\": {},\n", manifest.alignment);
  out += fmt::format("\"source_hash\": {},\n", JsonQuote(manifest.source_hash));
  out += fmt::format("\"config\": {},\n", WriteJson(manifest.config));
  out += "\"files\": [";
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const SourceFile& file = manifest.files[i];
    out += fmt::format("{}\n{{\"name\":{},\"bytes\":{},\"header_hash\":\"{:016x}\"}}", i == 0 ? "" : ",",
                       JsonQuote(file.path), file.bytes, file.header_hash);
  }
  out += "\n],\n\"pieces\": [";
  for (size_t i = 0; i < manifest.pieces.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    AppendPiece(manifest.pieces[i], out);
  }
  out += "\n]\n}\n";
  return out;
}

bool IsPlainFileName(std::string_view name) {
  constexpr size_t kMaxBytes = 255;  // of file systems
  if (name.empty() || name.size() > kMaxBytes || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

Status AddPackTensors(const Manifest& manifest, const std::string& folder, TensorIndex& index) {
  int32_t first_file = 0;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    SourceFile file = manifest.files[i];
    file.path = JoinPath(folder, file.path);
    const Result<File> opened = File::OpenRead(file.path);
    if (!opened.ok()) {
      if (opened.status().code() != StatusCode::kNotFound) return opened.status();
      return DataLossError(
          fmt::format("{} is missing: the pack's manifest lists it with {} bytes", file.path, file.bytes));
    }
    ASSIGN_OR_RETURN(const int64_t found, opened->Size());
    if (found != file.bytes) {
      return DataLossError(fmt::format("{} {}: expected {} bytes by the pack's manifest, found {}", file.path,
                                       found < file.bytes ? "is truncated" : "is too long", file.bytes, found));
    }
    const int32_t added = index.AddFile(std::move(file));
    if (i == 0) first_file = added;
  }
  for (const ManifestPiece& piece : manifest.pieces) {
    for (const ManifestTensor& tensor : piece.tensors) {
      RETURN_IF_ERROR(index.AddTensor({.name = tensor.name,
                                       .dtype = tensor.dtype,
                                       .shape = tensor.shape,
                                       .file = first_file + piece.file,
                                       .offset = piece.offset + tensor.offset,
                                       .bytes = tensor.bytes}));
    }
  }
  return Status();
}

}  // namespace nunspark
