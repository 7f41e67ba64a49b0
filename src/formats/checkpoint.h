// A model on disk, whatever its form: configuration, quantisation, tensors, stop tokens.
#ifndef NUNSPARK_FORMATS_CHECKPOINT_H_
#define NUNSPARK_FORMATS_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/quantization.h"
#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

struct Checkpoint {
  std::string folder;
  Json config;  // normalised: rope_parameters lifted into rope_theta / rope_scaling
  QuantizationConfig quantization;
  TensorIndex tensors;
  bool is_pack = false;           // opened from its manifest, of which nothing else is kept
  bool is_original_pack = false;  // of the original Nunspark; names and config are those of a checkpoint
  bool is_gguf = false;           // opened from a GGUF file; `config` is translated from its metadata (GgufConfig)
  std::string gguf_path;          // of a GGUF model: the file that holds its metadata; its vocabulary: ReadGgufVocab
  std::vector<int32_t> eos_ids;   // generation_config.json's if it has any, else config.json's; may be empty
  std::string source_hash;        // XXH3-128 over names, sizes and header hashes of the weight files, hex
};

// Opens a model folder: a pack (manifest.json, ours or the original's) or a checkpoint (config.json +
// model.safetensors, or shards with model.safetensors.index.json, or any model*.safetensors), or one GGUF model without
// a config.json; or a .gguf file itself, any shard of a split one. Then `folder` is the file's folder. Errors:
// kNotFound says what the folder lacks (for what looks like a repository id: `nunspark pull`, since nothing is fetched
// here); kDataLoss for corrupt, truncated or missing shards (names the shard, expected and found), LFS pointers.
Result<Checkpoint> OpenCheckpoint(const std::string& folder);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_CHECKPOINT_H_
