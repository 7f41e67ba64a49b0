// RoPE's parameters out of a GGUF file: metadata and the small tensors of factors.
#ifndef NUNSPARK_FORMATS_GGUF_ROPE_H_
#define NUNSPARK_FORMATS_GGUF_ROPE_H_

#include "base/json.h"
#include "formats/gguf_keys.h"
#include "formats/gguf_model.h"
#include "nunspark/status.h"

namespace nunspark {

// Sets "rope_theta" (10000 when the file has none), "rope_scaling" (null or an object with "rope_type"), and
// "rope_parameters" by layer type where only the layers that see everything are scaled "proportional"ly.
// rope_freqs (llama3's scaling, computed by the converter) and rope_factors_{long,short} become rope_type "longrope",
// whose factors divide the frequencies. REQUIRES: the head's width and the window pattern are already in `config`.
// Errors: as GgufConfig.
Status ReadGgufRope(const GgufModel& model, const GgufKeys& keys, Json& config);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_ROPE_H_
