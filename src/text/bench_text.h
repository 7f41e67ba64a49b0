// Text to measure tokenizers with. For benchmarks only.
#ifndef NUNSPARK_TEXT_BENCH_TEXT_H_
#define NUNSPARK_TEXT_BENCH_TEXT_H_

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace nunspark::text {

// A few sentences on one subject in languages of different scripts; they are cut up and mixed.
inline constexpr std::string_view kOtherLanguages[] = {
    "Am Morgen zog der Nebel über den Fluss, und die Fischer warteten am Ufer, bis man die andere Seite wieder sehen "
    "konnte. Früher fuhren hier täglich Schiffe; heute kommen nur noch Gäste, die das alte Mühlrad fotografieren. "
    "Manchmal überlegt die Müllerin, ob sie das Wehr nicht doch öffnen sollte.",
    "Le matin, la brume glissait sur la rivière et les pêcheurs attendaient que l'autre rive réapparaisse. Autrefois, "
    "des bateaux passaient ici chaque jour ; aujourd'hui, il ne vient plus que des visiteurs pour voir le vieux "
    "moulin. "
    "Où sont passées les péniches d'antan ? Nul ne s'en souvient très bien.",
    "Por la mañana la niebla cubría el río, y los pescadores esperaban hasta que se volvía a ver la otra orilla. Antes "
    "pasaban barcos todos los días; ahora sólo llegan viajeros que quieren ver el viejo molino. ¿Quién abrirá mañana "
    "la compuerta? Nadie lo sabe todavía.",
    "Утром над рекой стоял туман, и рыбаки ждали, пока снова станет виден другой берег. Раньше здесь каждый день "
    "проходили суда, а теперь приезжают только гости, чтобы посмотреть на старую мельницу. Иногда мельник думает, не "
    "открыть ли ему всё-таки плотину.",
    "Rano nad rzeką unosiła się mgła, a rybacy czekali, aż znów będzie widać drugi brzeg. Dawniej codziennie "
    "przepływały tędy statki; dziś przyjeżdżają już tylko goście, żeby obejrzeć stary młyn. Czasem młynarz myśli, czy "
    "jednak nie otworzyć śluzy.",
    "Sabahları nehrin üstünü sis kaplardı ve balıkçılar karşı kıyı görününceye kadar beklerdi. Eskiden buradan her gün "
    "gemiler geçerdi; şimdi yalnızca eski değirmeni görmek isteyen konuklar geliyor.",
    "Το πρωί η ομίχλη σκέπαζε το ποτάμι και οι ψαράδες περίμεναν ώσπου να φανεί πάλι η απέναντι όχθη. Παλιά περνούσαν "
    "από εδώ πλοία κάθε μέρα· σήμερα έρχονται μόνο επισκέπτες για να δουν τον παλιό μύλο.",
    "清晨，河面上飘着雾，渔夫们等着，直到又能看见对岸。从前每天都有船经过这里；如今只有来看老水车的客人。"
    "磨坊主有时会想，是不是该把水闸打开。没有人知道明天会怎样，但河水总是在流。",
    "朝になると川には霧がかかり、漁師たちは向こう岸が見えるまで待っていた。昔は毎日ここを船が通ったが、今では古い水車を"
    "見に来る人しかいない。水門を開けたほうがいいのだろうか、と粉屋はときどき考える。",
    "아침이면 강 위로 안개가 끼었고, 어부들은 건너편 기슭이 다시 보일 때까지 기다렸다. 예전에는 날마다 배가 지나갔지만 "
    "지금은 오래된 물레방아를 보러 오는 손님뿐이다. 방앗간 주인은 가끔 수문을 열어야 할지 생각한다.",
    "في الصباح كان الضباب يغطي النهر، وكان الصيادون ينتظرون حتى تظهر الضفة الأخرى من جديد. كانت السفن تمر من هنا كل "
    "يوم، أما اليوم فلا يأتي إلا الزوار ليروا الطاحونة القديمة.",
    "בבוקר כיסה הערפל את הנהר, והדייגים חיכו עד שנראתה שוב הגדה השנייה. פעם עברו כאן ספינות מדי יום; היום באים רק "
    "אורחים לראות את הטחנה הישנה.",
    "सुबह नदी पर कोहरा छाया रहता था और मछुआरे तब तक इंतज़ार करते थे जब तक दूसरा किनारा फिर से दिखाई न दे। पहले यहाँ हर "
    "दिन जहाज़ गुज़रते थे; अब केवल पुरानी पनचक्की देखने वाले मेहमान आते हैं।",
    "ตอนเช้ามีหมอกปกคลุมแม่น้ำ และชาวประมงรอจนมองเห็นอีกฝั่งอีกครั้ง แต่ก่อนมีเรือแล่นผ่านที่นี่ทุกวัน ตอนนี้มีแต่แขกที่มาดูกังหันน้ำเก่า",
};

// About `bytes` of text: 45 % English (this project's documents and comments), 30 % code, 25 % of the languages above,
// in blocks of 4 KB, mixed. The same for one revision of the project.
inline std::string MixedText(size_t bytes) {
  namespace fs = std::filesystem;
  const fs::path root(NUNSPARK_SOURCE_DIR);
  std::vector<fs::path> paths;
  for (const char* const folder : {"docs", "src", "tests/oracles", "tools"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string english, code;
  for (const fs::path& path : paths) {
    const std::string kind = path.extension().string();
    if (kind != ".md" && kind != ".cc" && kind != ".h" && kind != ".py") continue;
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      const size_t begin = std::min(line.find_first_not_of(' '), line.size());
      const bool comment = line.compare(begin, 3, "// ") == 0;
      if (kind == ".md" || comment) {
        english += (kind == ".md" ? line : line.substr(begin + 3)) + "\n";
      } else {
        code += line + "\n";
      }
    }
  }
  std::mt19937 random(1);
  std::string other;
  while (other.size() < bytes / 4) {
    const std::string_view text = kOtherLanguages[random() % std::size(kOtherLanguages)];
    // From one space (or character, where there are few spaces) to a later one.
    size_t begin = random() % text.size(), end = begin + 20 + random() % 200;
    const auto bound = [text](size_t at) {
      while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
      return std::min(at, text.size());
    };
    begin = bound(begin);
    end = std::max(begin, bound(end));
    other += std::string(text.substr(begin, end - begin)) + (random() % 8 == 0 ? "\n" : " ");
  }
  struct Source {
    const std::string& text;
    size_t share;  // of 100
    size_t at = 0;
  };
  Source sources[] = {{english, 45}, {code, 30}, {other, 25}};
  std::string mixed;
  constexpr size_t kBlock = 4096;
  while (mixed.size() < bytes) {
    const size_t pick = random() % 100;
    Source& source = pick < 45 ? sources[0] : pick < 75 ? sources[1] : sources[2];
    CHECK(!source.text.empty());
    if (source.at >= source.text.size()) source.at = 0;
    size_t end = std::min(source.at + kBlock, source.text.size());
    while (end < source.text.size() && (source.text[end] & 0xC0) == 0x80) ++end;
    mixed.append(source.text, source.at, end - source.at);
    source.at = end;
  }
  return mixed;
}

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_BENCH_TEXT_H_
