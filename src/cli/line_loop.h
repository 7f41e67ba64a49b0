// The JSON-lines verbs: a line in, a line out, in order, flushed.
#ifndef NUNSPARK_CLI_LINE_LOOP_H_
#define NUNSPARK_CLI_LINE_LOOP_H_

#include <functional>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark::cli {

// Called for every line that is not blank, without white space around it. `too_long`: it is longer than 64 MiB, and
// what is given of it is only its beginning.
using LineCallback = std::function<Status(std::string_view line, bool too_long)>;

// Reads to the end. `what` names the input in errors.
// Errors: kCancelled on Ctrl-C; kIo when reading fails; on_line's, which end it.
Status ReadLines(int fd, const std::string& what, const LineCallback& on_line);

// Feeds every line of standard input to `answer` and writes what it returns. Blank lines are skipped; a line beyond
// 64 MiB is answered with an error object and not kept in memory. Ends with the input.
// Errors: kCancelled on Ctrl-C; kIo when standard input or output fails.
Status LoopOverLines(const std::function<std::string(std::string_view)>& answer);

}  // namespace nunspark::cli

#endif  // NUNSPARK_CLI_LINE_LOOP_H_
