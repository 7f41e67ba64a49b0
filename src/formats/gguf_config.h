// The configuration of a GGUF model under the names of Hugging Face's config.json, so that one table per model type
// reads both.
#ifndef NUNSPARK_FORMATS_GGUF_CONFIG_H_
#define NUNSPARK_FORMATS_GGUF_CONFIG_H_

#include "base/json.h"
#include "formats/gguf_model.h"
#include "nunspark/status.h"

namespace nunspark {

// Translates the metadata (docs/FORMAT.md lists the keys):
// - model_type is general.architecture as it is ("qwen3moe");
// - values that a file may give per layer become a number when all layers agree, else a list with one number a layer;
// - tie_word_embeddings, the bias flags and vocab_size are read off the tensors;
// - the small tensors rope_freqs and rope_factors_* are read and become rope_scaling;
// - what llama.cpp's converter changes in the weights and does not write down comes from one table by architecture:
//   "rope_traditional" (rows of q and k lie in interleaved order), "norm_plus_one": false (1 was added to the norms).
// Errors: kDataLoss for a missing or wrongly typed key, a value out of range, lists of the wrong length (file, key,
// expected, found); kUnsupported for a combination of RoPE scalings that config.json cannot say; kIo.
Result<Json> GgufConfig(const GgufModel& model);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_CONFIG_H_
