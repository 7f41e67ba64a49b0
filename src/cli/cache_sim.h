// `nunspark bench cache-sim`: a trace of experts through the cache, under other budgets and policies.
#ifndef NUNSPARK_CLI_CACHE_SIM_H_
#define NUNSPARK_CLI_CACHE_SIM_H_

#include <CLI/CLI.hpp>

#include "cli/verbs.h"

namespace nunspark::cli {

// Adds it to the verb `bench`.
void AddCacheSim(CLI::App& bench, Action* action);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_CACHE_SIM_H_
