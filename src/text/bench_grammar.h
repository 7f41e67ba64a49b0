// The benchmark of structured output, a part of nunspark_text_bench.
#ifndef NUNSPARK_TEXT_BENCH_GRAMMAR_H_
#define NUNSPARK_TEXT_BENCH_GRAMMAR_H_

#include <string>
#include <vector>

namespace nunspark::text {

// For each tokenizer file: building the vocabulary; for some schemas compiling, and the time for the tokens of a text,
// when the grammar is new and when it has seen the text before. Lines of name, value, unit.
void BenchGrammar(const std::vector<std::string>& tokenizer_paths);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_BENCH_GRAMMAR_H_
