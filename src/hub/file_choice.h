// Which files of a repository make a model: for what is listed by a hub as for what lies in the cache.
#ifndef NUNSPARK_HUB_FILE_CHOICE_H_
#define NUNSPARK_HUB_FILE_CHOICE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

struct NamedSize {
  std::string name;  // path inside the repository, with '/'
  int64_t bytes = 0;
};

// One model of a repository of GGUF files. Projectors and importance matrices are none.
struct GgufFiles {
  std::string name;            // of the file, or of its first shard
  std::vector<size_t> shards;  // indices into what was given, in order
  int64_t bytes = 0;           // of all shards
  bool complete = false;       // all shards are there
};

// By name.
std::vector<GgufFiles> GroupGguf(const std::vector<NamedSize>& files);

// The one that `wanted` names: by file name, by a pattern with * and ?, or by quantisation ("Q4_K_M", in any case).
// "": the only one. Errors: kNotFound when none fits, kInvalidArgument when several do; both list names and sizes.
Result<GgufFiles> ChooseGguf(const std::vector<GgufFiles>& models, std::string_view wanted);

// config.json, and all of model*.safetensors as far as their numbers ("-00001-of-00003") tell.
bool IsWholeCheckpoint(const std::vector<NamedSize>& files);

// Indices of the files that are needed to run the model: configuration, tokenizer, templates and safetensors of a
// checkpoint, or, where `wanted` asks for one or there is nothing else, one GGUF file with its shards. Weights in other
// formats (.bin, .pth, .onnx ..) are never chosen. `model`: index of the file that opens a GGUF model, -1 for a folder.
struct FileChoice {
  std::vector<size_t> files;
  int64_t model = -1;
};

// Errors: ChooseGguf's; kNotFound when the repository has no weights that can be read, saying what it has instead.
Result<FileChoice> ChooseFiles(const std::vector<NamedSize>& files, std::string_view wanted);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_FILE_CHOICE_H_
