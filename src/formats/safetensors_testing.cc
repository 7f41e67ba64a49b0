#include "formats/safetensors_testing.h"

#include "formats/safetensors.h"
#include "io/file.h"

namespace nunspark {

Status WriteSafetensorsFile(const std::string& path, const std::vector<TensorToWrite>& tensors) {
  std::vector<TensorInfo> infos;
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    infos.push_back({.name = tensor.name,
                     .dtype = tensor.dtype,
                     .shape = tensor.shape,
                     .bytes = static_cast<int64_t>(tensor.data.size())});
    data += tensor.data;
  }
  return WriteFileAtomically(path, WriteSafetensorsHeader(infos, 8) + data);
}

}  // namespace nunspark
