// A model in GGUF form, in one file or in shards, as a TensorIndex.
#ifndef NUNSPARK_FORMATS_GGUF_MODEL_H_
#define NUNSPARK_FORMATS_GGUF_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

struct GgufModel {
  // The files, in order. The first holds the metadata.
  std::vector<std::string> paths;
  // Of the first file; its `tensors` are empty (they are in `tensors` below).
  GgufFile first;
  // Shapes are row-major ([rows, cols], experts [experts, rows, cols]). Plain numbers are under the tensor's name;
  // blocks as bytes under "<name>@<type>": "blk.0.attn_q.weight@q4_k", U8, [..., rows, bytes of a row].
  TensorIndex tensors;
};

// Opens `path`: a file of its own, or any shard "<prefix>-00001-of-00003.gguf", whose siblings are found by name.
// Errors: as ReadGguf; kDataLoss when a shard is missing (names it) or split.* contradicts the names; kUnsupported for
// a tensor of a type that this build cannot read (names tensor and type, lists what can be read).
Result<GgufModel> OpenGgufModel(const std::string& path);

// Adds a file and its tensors, which are taken out of it. Errors: as OpenGgufModel.
Status AddGgufTensors(GgufFile& file, TensorIndex& index);

// The one GGUF model of a folder (its first shard); "" when there is none. Files "mmproj*" are parts of vision models
// and do not count. Errors: kInvalidArgument when there are several (names them); as ListFolder.
Result<std::string> FindGgufModel(const std::string& folder);

bool IsGgufName(std::string_view path);  // ends in ".gguf"

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_MODEL_H_
