#include "cli/bench_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace nunspark::cli {
namespace {

constexpr int kWidth = 900, kLeft = 190, kRight = 210, kTop = 96, kPitch = 34, kBarHeight = 20, kBottom = 56;
// Told apart also by those who see no red.
constexpr const char *kComputeColour = "#2f6fab", *kStallColour = "#d98a29";

std::string Escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return escaped;
}

// A round number that gives from three to eight steps up to `most`.
double StepOf(double most) {
  const double power = std::pow(10, std::floor(std::log10(std::max(most, 1e-9))));
  for (const double factor : {0.2, 0.5, 1.0}) {
    if (most / (factor * power) <= 8) return factor * power;
  }
  return 2 * power;
}

std::string Text(double x, double y, const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, Escape(text));
}

std::string Box(double x, double y, double width, double height, const char* colour) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y, width,
                     height, colour);
}

}  // namespace

std::string BenchPlot(const std::string& title, const std::string& subtitle, std::span<const BenchBar> bars) {
  double most = 1e-3;
  for (const BenchBar& bar : bars) most = std::max(most, bar.ms_per_token);
  const double scale = (kWidth - kLeft - kRight) / most;
  const int height = kTop + kPitch * static_cast<int>(bars.size()) + kBottom, floor = height - kBottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\" "
      "role=\"img\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, height, Escape(title));
  svg += Text(16, 26, title, " font-size=\"17\" font-weight=\"bold\"") + Text(16, 48, subtitle, " fill=\"#555555\"");
  svg += Box(kLeft, 62, 12, 12, kComputeColour) + Text(kLeft + 18, 73, "computing");
  svg += Box(kLeft + 110, 62, 12, 12, kStallColour) + Text(kLeft + 128, 73, "waiting for the drive");
  const double step = StepOf(most);
  for (double at = 0; at <= most * 1.0001; at += step) {
    const double x = kLeft + at * scale;
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#dddddd\"/>\n", x, kTop - 8,
                       floor);
    svg += Text(x, floor + 18, fmt::format("{:g}", at), " text-anchor=\"middle\" fill=\"#555555\"");
  }
  svg += Text(kLeft, floor + 40, "milliseconds of a token", " fill=\"#555555\"");
  double y = kTop;
  for (const BenchBar& bar : bars) {
    const double width = bar.ms_per_token * scale, stall = width * std::clamp(bar.stall_share, 0.0, 1.0);
    svg += Text(kLeft - 10, y + 15, bar.label, " text-anchor=\"end\"");
    svg += Box(kLeft, y, width - stall, kBarHeight, kComputeColour);
    svg += Box(kLeft + width - stall, y, stall, kBarHeight, kStallColour);
    svg += Text(kLeft + width + 8, y + 15,
                fmt::format("{:.2f} tok/s, {:.0f} MB read", bar.tokens_per_s, bar.read_mb_per_token));
    y += kPitch;
  }
  return svg + "</svg>\n";
}

}  // namespace nunspark::cli
