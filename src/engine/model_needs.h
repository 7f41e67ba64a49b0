// Figures of this machine and of a model's keys and values, for those who choose before they open an engine.
#ifndef NUNSPARK_ENGINE_MODEL_NEEDS_H_
#define NUNSPARK_ENGINE_MODEL_NEEDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/model_files.h"
#include "weights/speed_estimate.h"

namespace nunspark {

// The rates of this machine, each measured once: that of a drive takes a third of a second of reading.
class RateMeter {
 public:
  // With the drive that `model` lies on. 0 for what cannot be measured.
  MachineRates Of(const std::string& model);

 private:
  std::optional<double> memory_;
  std::map<uint64_t, double> drives_;  // by st_dev
};

// The budget that is planned with where none is given, before any model is known.
int64_t AutomaticBudget();

// Keys and values of a position as f16, by the shape of the first layer: layers x kv heads x head size x 4 bytes.
int64_t KvBytesPerToken(const ModelFilesImpl& files);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_MODEL_NEEDS_H_
