// draw as its users see it: the picture is XML and shows every transfer, the page carries the plan, faults
// are red; and in a browser, where there is one (chromium), the page shows the sums that the plan makes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/text_file.h"
#include "parallel/collective/plan_file.h"
#include "parallel/collective/serial.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

using nlohmann::json;

// What keeps `text` from being well-formed XML, of the kind that is written here; empty where nothing does.
std::string fault_in_xml(const std::string& text) {
  std::vector<std::string> open;
  int roots = 0;
  const std::regex tag(R"re(<(/?)([a-z]+)((?: [A-Za-z0-9:-]+="[^"<]*")*)(/?)>)re");
  const std::regex words(R"re([^<>&]*(?:&(?:amp|lt|gt|quot);[^<>&]*)*)re");
  auto at = text.cbegin();
  for (std::smatch match;
       std::regex_search(at, text.cend(), match, tag, std::regex_constants::format_default);
       at = match[0].second) {
    const std::string between(at, match[0].first), name = match[2];
    if (!std::regex_match(between, words)) return fmt::format("text: {}", between.substr(0, 60));
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != name) return fmt::format("</{}> closes nothing", name);
      open.pop_back();
    } else {
      roots += open.empty();
      if (match[4].length() == 0) open.push_back(name);
    }
  }
  if (!open.empty()) return fmt::format("<{}> is not closed", open.back());
  if (roots != 1) return fmt::format("{} roots", roots);
  return std::all_of(at, text.cend(), [](char c) { return c == '\n'; }) ? "" : "text after the end";
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class Draw : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string text_of(const std::string& name) const { return read_text(path(name)); }

  // With the picture in p.svg.
  Outcome draw(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), DRAW);
    arguments.insert(arguments.end(), {"-o", path("p.svg")});
    return run_program(arguments);
  }

  std::string refusal(const std::vector<std::string>& arguments) const {
    const Outcome outcome = draw(arguments);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_FALSE(std::filesystem::exists(path("p.svg")));
    return outcome.error;
  }

  // What the page's script reads.
  json data_of(const std::string& page) const {
    const std::string text = text_of(page), mark = "<script type=\"application/json\" id=\"plan\">";
    const size_t begin = text.find(mark) + mark.size();
    return json::parse(text.substr(begin, text.find("</script>", begin) - begin));
  }

 private:
  data::TemporaryFolder folder_;
};

TEST_F(Draw, EveryPlanOfTheTablesAsXmlWithAnArrowForEveryTransfer) {
  for (const auto* table : {&collective::algorithms(), &collective::other_collectives()})
    for (const auto& [name, plan, in_chunks] : *table)
      for (const char* ranks : {"1", "2", "6"}) {
        const Outcome outcome = draw({name, "--ranks", ranks, "--json", path("p.json")});
        EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
        const std::string picture = text_of("p.svg");
        EXPECT_EQ(fault_in_xml(picture), "") << name << " over " << ranks;
        EXPECT_EQ(occurrences(picture, "<polygon"), collective::read_plan(path("p.json")).transfers.size())
            << name;
        EXPECT_EQ(occurrences(picture, "d00000"), 0u) << name;
      }
}

TEST_F(Draw, TheXmlReaderOfTheseTestsFindsFaults) {
  EXPECT_EQ(fault_in_xml("<a b=\"c\"><d/>x &lt; y</a>\n"), "");
  for (const char* bad :
       {"<a>", "<a></b>", "<a>x & y</a>", "<a b=c></a>", "<a/><b/>", "<a>1 < 2</a>", "<a/>x"})
    EXPECT_NE(fault_in_xml(bad), "") << bad;
}

TEST_F(Draw, ThePageCarriesThePlan) {
  const Outcome outcome =
      draw({"tree", "--ranks", "5", "--chunks", "2", "--animate", path("p.html"), "--json", path("p.json")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const collective::Plan plan = collective::read_plan(path("p.json"));
  const json data = data_of("p.html");
  EXPECT_EQ(data.at("ranks"), 5);
  EXPECT_EQ(data.at("count"), plan.count);
  EXPECT_TRUE(data.at("violation").is_null());
  EXPECT_EQ(data.at("cuts").size(), data.at("names").size() + 1);
  ASSERT_EQ(data.at("transfers").size(), plan.transfers.size());
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    const collective::Transfer& t = plan.transfers[i];
    const json& drawn = data.at("transfers")[i];
    EXPECT_EQ(drawn.at("round"), t.round);
    EXPECT_EQ(drawn.at("from"), t.source);
    EXPECT_EQ(drawn.at("to"), t.destination);
    EXPECT_EQ(drawn.at("begin"), t.slice.begin);
    EXPECT_EQ(drawn.at("end"), t.slice.end);
    EXPECT_EQ(drawn.at("action"), t.action == collective::Action::add ? "add" : "copy");
  }
  // Nothing from elsewhere.
  const std::string page = text_of("p.html");
  EXPECT_EQ(occurrences(page, "src="), 0u);
  EXPECT_EQ(occurrences(page, "href="), 0u);
  EXPECT_EQ(occurrences(page, "http"), occurrences(page, "http://www.w3.org/2000/svg"));
}

TEST_F(Draw, WhatIsWrongIsRed) {
  collective::Plan plan = collective::ring(4, 8);
  plan.transfers[5].slice = {2, 4};  // round 1
  std::ofstream(path("bad.json")) << plan_as_json(plan);
  const Outcome outcome = draw({path("bad.json"), "--animate", path("p.html")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("wrong, and drawn in red: round 1: "), std::string::npos) << outcome.out;
  const std::string picture = text_of("p.svg");
  EXPECT_EQ(fault_in_xml(picture), "");
  EXPECT_EQ(occurrences(picture, "stroke=\"#d00000\""), 1u);
  EXPECT_EQ(occurrences(picture, "Wrong: round 1: "), 1u);
  int wrong = 0;
  const json data = data_of("p.html");
  for (const json& t : data.at("transfers")) wrong += t.value("wrong", false);
  EXPECT_EQ(wrong, 1);
}

TEST_F(Draw, RingsOverATopology) {
  const Outcome outcome = draw({"rings", "--topology", EIGHT_GPUS, "--json", path("p.json")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(collective::read_plan(path("p.json")).transfers.size(), 6u * 8 * 14);
  EXPECT_EQ(draw({"rings", "--json", path("machine.json")}).exit_code, 0);  // this machine's
  EXPECT_GE(collective::read_plan(path("machine.json")).ranks, 1);
}

TEST_F(Draw, ThePicturesOfThePageAreWhatItDraws) {
  const std::vector<std::vector<std::string>> all{{"ring"},
                                                  {"bidirectional_ring"},
                                                  {"star"},
                                                  {"sharded_star"},
                                                  {"halving_doubling"},
                                                  {"tree", "--ranks", "7", "--chunks", "3"},
                                                  {"double_tree", "--ranks", "8", "--chunks", "2"}};
  for (const std::vector<std::string>& arguments : all) {
    draw(arguments);
    const std::string committed = IMAGES "/" + arguments[0] + ".svg";
    EXPECT_TRUE(text_of("p.svg") == read_text(committed)) << committed << " is out of date: draw it again";
  }
}

TEST_F(Draw, RefusesWhatItCannotDraw) {
  EXPECT_TRUE(refusal({"rign"}).starts_with("draw: NAME: unknown name 'rign', did you mean 'ring'? ("));
  EXPECT_EQ(refusal({"ring", "--ranks", "65"}), "draw: --ranks is 65: use 1 to 64\n");
  EXPECT_EQ(refusal({"ring", "--count", "-5"}), "draw: --count is -5: use 1 or more\n");
  EXPECT_EQ(refusal({"ring", "--chunks", "2"}),
            "draw: --chunks: ring does not work in chunks: leave it out\n");
  EXPECT_EQ(refusal({"ring", "--topology", EIGHT_GPUS}),
            "draw: --topology: only 'rings' are laid over one\n");
  EXPECT_EQ(refusal({"rings", "--topology", EIGHT_GPUS, "--ranks", "8"}),
            "draw: --ranks: rings are as the topology has them: leave it out\n");
  EXPECT_EQ(refusal({path("none.json")}),
            "draw: " + path("none.json") + ": cannot be read: No such file or directory\n");
  std::ofstream(path("own.json")) << plan_as_json(collective::ring(2, 8));
  EXPECT_EQ(refusal({path("own.json"), "--ranks", "2"}),
            "draw: --ranks: a plan in a file has its own: leave it out\n");
  EXPECT_EQ(refusal({path("own.json"), "--json", path("own.json")}),
            "draw: " + path("own.json") + ": is the file to read, too: write to another one\n");
  EXPECT_EQ(refusal({"ring", "--animate", path("nowhere/p.html")}),
            "draw: " + path("nowhere/p.html") + ": cannot write into " + path("nowhere") +
                ": No such file or directory\n");
}

// --- in a browser

class Browser : public Draw {
 protected:
  void SetUp() override {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
      for (std::string folder; std::getline(folders, folder, ':') && browser_.empty();)
        if (std::filesystem::exists(folder + "/" + name)) browser_ = folder + "/" + name;
    }
    if (browser_.empty()) GTEST_SKIP() << "no chromium in PATH";
  }

  // The page after its script has run, and after `script`, in a window of that width.
  std::string shown(const std::string& page, const std::string& hash, const std::string& script = "",
                    int width = 1000) const {
    std::ofstream(path("shown.html")) << text_of(page) << "<script>" << script << "</script>";
    const Outcome outcome = run_program(
        {browser_, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + path("browser"),
         fmt::format("--window-size={},800", width), "--dump-dom", "file://" + path("shown.html") + hash});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return outcome.out;
  }

  // The sums of a page's table, row by row: "0|0 1|...".
  static std::vector<std::string> sums(const std::string& page) {
    std::vector<std::string> sums;
    const std::regex cell("data-sum=\"([^\"]*)\"");
    for (auto at = std::sregex_iterator(page.begin(), page.end(), cell); at != std::sregex_iterator(); ++at)
      sums.push_back((*at)[1]);
    return sums;
  }

 private:
  std::string browser_;
};

// The ranks in every sum after some rounds, rank by rank and piece by piece, from the plan itself.
std::vector<std::string> sums_of(collective::Plan plan, int rounds, const json& cuts) {
  std::erase_if(plan.transfers, [&](const collective::Transfer& t) { return t.round >= rounds; });
  std::vector<std::vector<uint64_t>> sets;
  for (int rank = 0; rank < plan.ranks; ++rank)
    sets.emplace_back(static_cast<size_t>(plan.count), uint64_t{1} << rank);
  carry_out(plan, sets, std::bit_or<uint64_t>());
  std::vector<std::string> sums;
  for (const auto& buffer : sets)
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::string sum;
      for (int from = 0; from < plan.ranks; ++from)
        if ((buffer[cuts[i].get<size_t>()] >> from & 1) != 0)
          sum += fmt::format("{}{}", sum.empty() ? "" : " ", from);
      sums.push_back(sum);
    }
  return sums;
}

TEST_F(Browser, ThePageShowsTheSumsAfterEveryRound) {
  for (const char* name : {"ring", "halving_doubling"}) {
    draw({name, "--ranks", "4", "--animate", path("p.html"), "--json", path("p.json")});
    const collective::Plan plan = collective::read_plan(path("p.json"));
    const json cuts = data_of("p.html").at("cuts");
    for (int rounds = 0; rounds <= cost_of(plan).rounds; rounds += 2)
      EXPECT_EQ(sums(shown("p.html", fmt::format("#{}", rounds))), sums_of(plan, rounds, cuts))
          << name << ", " << rounds << " rounds";
  }
}

TEST_F(Browser, ButtonsAndKeysStepThroughTheRounds) {
  draw({"ring", "--ranks", "3", "--animate", path("p.html")});
  const std::string page = shown("p.html", "", R"(
    const seen = [];
    const note = () => seen.push(step + (byId("back").disabled ? "<" : "") + (byId("next").disabled ? ">" : ""));
    const press = key => dispatchEvent(new KeyboardEvent("keydown", {key}));
    note();
    for (const id of ["next", "next", "back", "last", "first"]) { byId(id).click(); note(); }
    for (const key of ["ArrowLeft", "ArrowRight", "ArrowRight", "ArrowLeft", "x", "End", "ArrowRight", "Home"]) { press(key); note(); }
    document.title = seen.join(" ");)");
  EXPECT_NE(page.find("<title>0&lt; 1 2 1 4&gt; 0&lt; 0&lt; 1 2 1 1 4&gt; 4&gt; 0&lt;</title>"),
            std::string::npos)
      << page.substr(0, 300);
}

TEST_F(Browser, NothingIsWiderThanATelephone) {
  draw({"ring", "--ranks", "8", "--animate", path("p.html")});
  const std::string page = shown("p.html", "#14", R"(
    const frame = document.createElement("div");
    frame.style.width = "375px";
    frame.append(...document.body.childNodes);
    document.body.style.padding = 0;
    document.body.append(frame);
    document.title = "widest " + Math.max(...[...frame.children].map(e => e.getBoundingClientRect().right));)");
  const size_t at = page.find("<title>widest ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LE(std::stod(page.substr(at + 14)), 375) << page.substr(at, 60);
}

TEST_F(Browser, AFaultIsShownAsOne) {
  collective::Plan plan{3,
                        6,
                        {{0, 1, 0, {0, 6}, collective::Action::add},
                         {1, 0, 2, {0, 6}, collective::Action::add},
                         {2, 1, 2, {0, 3}, collective::Action::add}}};
  std::ofstream(path("bad.json")) << plan_as_json(plan);
  draw({path("bad.json"), "--animate", path("p.html")});
  const std::string page = shown("p.html", "#3");
  EXPECT_EQ(sums(page), (std::vector<std::string>{"0 1", "0 1", "1", "1", "0 1x2 2", "0 1 2"}));
  EXPECT_NE(page.find("rank 2 adds slice [0, 3) of rank 1 twice, in rounds 1 and 2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::apps
