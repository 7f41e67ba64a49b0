// nunspark web.
#ifndef NUNSPARK_CLI_VERB_WEB_H_
#define NUNSPARK_CLI_VERB_WEB_H_

#include "cli/verbs.h"

namespace nunspark::cli {

void AddWeb(CLI::App& app, Action* action);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_VERB_WEB_H_
