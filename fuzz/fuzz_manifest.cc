// manifest.json and checksums.json of packs: what is accepted is consistent and reads back the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "formats/checksums.h"
#include "formats/manifest.h"

namespace {

using namespace nunspark;

void CheckManifest(const Manifest& manifest) {
  CHECK(!manifest.files.empty() && !manifest.pieces.empty());
  for (const SourceFile& file : manifest.files) CHECK(file.path.find('/') == std::string::npos);
  for (const ManifestPiece& piece : manifest.pieces) {
    CHECK(piece.offset % manifest.alignment == 0 && piece.bytes % manifest.alignment == 0);
    CHECK(piece.offset > 0 && piece.bytes > 0);
    CHECK(piece.offset + piece.bytes <= manifest.files[static_cast<size_t>(piece.file)].bytes);
    int64_t at = 0;
    for (const ManifestTensor& tensor : piece.tensors) {
      CHECK(tensor.offset >= at && tensor.offset % kPackTensorAlignment == 0);
      CHECK(TensorBytes(tensor.shape, tensor.dtype) == tensor.bytes);
      at = tensor.offset + tensor.bytes;
    }
    CHECK(at <= piece.bytes);
  }
}

// The other way of reading finds the same tensors.
void CheckIndex(const std::string& text, const Manifest& manifest) {
  const Result<PackIndex> index = ParsePackIndex(text, "input");
  CHECK(index.ok());
  size_t count = 0;
  for (const ManifestPiece& piece : manifest.pieces) {
    for (const ManifestTensor& tensor : piece.tensors) {
      const TensorInfo& found = index->tensors[count++];
      CHECK(found.name == tensor.name && found.dtype == tensor.dtype && found.shape == tensor.shape);
      CHECK(found.file == piece.file && found.offset == piece.offset + tensor.offset && found.bytes == tensor.bytes);
    }
  }
  CHECK(count == index->tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const Result<Manifest> manifest = ParseManifest(text, "input"); manifest.ok()) {
    CheckManifest(*manifest);
    const std::string written = WriteManifest(*manifest);
    const Result<Manifest> again = ParseManifest(written, "output");
    CHECK(again.ok());
    CheckManifest(*again);
    CHECK(WriteManifest(*again) == written);
    CheckIndex(text, *manifest);
  } else {
    CHECK(ParsePackIndex(text, "input").status().message() == manifest.status().message());
  }
  if (const auto files = ParseChecksums(text, "input"); files.ok()) CHECK(WriteChecksums(*files) == text);
  return 0;
}
