// Writes safetensors files. For tests only.
#ifndef NUNSPARK_FORMATS_SAFETENSORS_TESTING_H_
#define NUNSPARK_FORMATS_SAFETENSORS_TESTING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

// `data` must hold exactly shape x dtype bytes.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string_view data;
};

// The tensors in the given order.
Status WriteSafetensorsFile(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_SAFETENSORS_TESTING_H_
