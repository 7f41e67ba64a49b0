// The files of drafters that work on the target's hidden state: EAGLE folders and Gemma 4 assistants.
#ifndef NUNSPARK_ENGINE_DRAFTER_FILES_H_
#define NUNSPARK_ENGINE_DRAFTER_FILES_H_

#include <string>

#include "formats/checkpoint.h"
#include "models/hparams.h"
#include "models/model_layout.h"
#include "nunspark/status.h"

namespace nunspark {

struct DrafterFiles {
  Checkpoint checkpoint;
  ModelLayout layout;
};

// A folder with any number of *.safetensors - of tensors that several have, the last file's counts, in the order of the
// names - and maybe a config.json; without, the dimensions are the target's, and two layers.
// Errors: kInvalidArgument when it is no folder or does not fit the target (expected, found); kNotFound for no weights
// or a missing tensor; kDataLoss for damaged files, shapes other than the configuration says (tensor, expected, found),
// and keys of config.json that no EAGLE drafter has.
Result<DrafterFiles> OpenEagleFolder(const std::string& folder, const HParams& target);

// Whether OpenEagleFolder would take the folder for some target: a configuration with an EAGLE drafter's keys and
// nothing else, and the tensor that joins a token with the state before it.
bool IsEagleFolder(const std::string& folder);

// A model of type gemma4_assistant, in any form a model may have. Errors: as OpenCheckpoint and ResolveModel;
// kInvalidArgument for another type, or when it does not fit the target.
Result<DrafterFiles> OpenAssistant(const std::string& path, const HParams& target);

}  // namespace nunspark

#endif  // NUNSPARK_ENGINE_DRAFTER_FILES_H_
