#include "formats/manifest.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"

namespace nunspark {
namespace {

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

Status AddPackFiles(const Manifest& manifest, const std::string& folder, TensorIndex& index) {
  for (SourceFile file : manifest.files) {
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
    index.AddFile(std::move(file));
  }
  return Status();
}

}  // namespace nunspark
