// Reading the scores of Unigram pieces.
#ifndef NUNSPARK_TEXT_TOKENIZER_SCORE_H_
#define NUNSPARK_TEXT_TOKENIZER_SCORE_H_

#include <optional>
#include <string_view>

namespace nunspark::text {

// The number that the reference library reads from a JSON number: one multiplication or division by a power of ten,
// which for 17 and more digits may be the neighbour of the nearest double. Segmentations of equal sums are decided by
// the last bit, so the nearest double would give other ids. Nothing for text that is no JSON number or too large.
std::optional<double> ParseScore(std::string_view text);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_SCORE_H_
