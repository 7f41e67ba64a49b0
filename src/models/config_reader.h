// What the readers of config.json share. Private to models.
#ifndef NUNSPARK_MODELS_CONFIG_READER_H_
#define NUNSPARK_MODELS_CONFIG_READER_H_

#include <array>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/hparams.h"
#include "nunspark/status.h"

namespace nunspark::internal {

// Members by field, as numbers; flags are 0 or 1.
struct FieldValue {
  double value = 0;
  bool given = false;  // in the file, not null
};
class FieldValues {
 public:
  FieldValue& operator[](HParamField field) { return values_[static_cast<size_t>(field)]; }
  const FieldValue& operator[](HParamField field) const { return values_[static_cast<size_t>(field)]; }
  double real(HParamField field) const { return (*this)[field].value; }
  int64_t whole(HParamField field) const { return static_cast<int64_t>((*this)[field].value); }
  bool flag(HParamField field) const { return (*this)[field].value != 0; }
  bool given(HParamField field) const { return (*this)[field].given; }

 private:
  std::array<FieldValue, kHParamFieldCount> values_{};
};

// kDataLoss: "<what>: <key>: expected <expected>, found <found>", the found value shortened.
Status WrongValue(std::string_view what, std::string_view key, std::string_view expected, const Json& found);

// nullptr for an absent key and for null.
const Json* FindGiven(const Json& object, std::string_view key);

// Fills hparams.ropes and the layers' rope indices. `sliding` says which layers slide; head dims are known.
Status ReadRopes(const ArchSpec& spec, const Json& config, std::string_view what, const FieldValues& values,
                 const std::vector<bool>& sliding, HParams& hparams);

}  // namespace nunspark::internal

#endif  // NUNSPARK_MODELS_CONFIG_READER_H_
