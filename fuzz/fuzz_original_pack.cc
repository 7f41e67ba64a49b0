// manifest.json of the original's packs: what is accepted names every tensor once, in plain files.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "formats/original_pack.h"

namespace {

using namespace nunspark;

void CheckPiece(const OriginalManifest& manifest, const OriginalPiece& piece) {
  CHECK(piece.file.find('/') == std::string::npos && piece.file.ends_with(".safetensors"));
  CHECK(piece.layer >= -1 && piece.layer < manifest.num_layers);
  CHECK(piece.expert == -1 || piece.layer >= 0);
  std::string_view before;
  for (const std::string& key : piece.keys) {
    CHECK(key > before);
    before = key;
    const std::string name = OriginalTensorName(piece, key);
    CHECK(!name.empty());
    if (piece.layer >= 0) CHECK(name.starts_with("model.layers." + std::to_string(piece.layer) + "."));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)IsOriginalManifest(text);
  const Result<OriginalManifest> manifest = ParseOriginalManifest(text, "input");
  if (!manifest.ok()) {
    CHECK(!manifest.status().message().empty());
    return 0;
  }
  CHECK(manifest->num_layers >= 1 && !manifest->pieces.empty());
  CHECK(manifest->config.Find("model_type")->is_string() && manifest->config.Find("tie_word_embeddings")->is_bool());
  for (const OriginalPiece& piece : manifest->pieces) CheckPiece(*manifest, piece);
  return 0;
}
