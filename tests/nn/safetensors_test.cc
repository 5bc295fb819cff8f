// Safetensors files: what is read and written, byte for byte as Python's package does, and that every kind of
// bad file is one exact line.
#include "nn/io/safetensors.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <span>

#include "tests/nn/idx_files.h"

namespace lockstep::data {
namespace {

template <typename T>
HostTensor tensor(const std::string& name, StoredType dtype, std::vector<int64_t> shape,
                  std::vector<T> values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}

Bytes bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file with this header and `data_bytes` bytes after it.
Bytes file_of(const std::string& header, size_t data_bytes = 0) {
  Bytes bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<uint8_t>(header.size() >> shift));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data_bytes, 7);
  return bytes;
}

// What the reader says about a file of these bytes, after the file's name and ": ".
std::string complaint(const Bytes& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", bytes);
  const std::string message = error_of([&] { read_safetensors(path); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  const std::string start = path.string() + ": ";
  EXPECT_EQ(message.substr(0, start.size()), start);
  return message.substr(std::min(start.size(), message.size()));
}

// The same for a header, with 24 bytes of data after it.
std::string header_complaint(const std::string& header) {
  return complaint(file_of(header, 24));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& place) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + place +
         '}';
}

size_t files_in(const TemporaryFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What tests/golden/python_safetensors.py put into the file, in the order of its header.
std::vector<HostTensor> golden_tensors() {
  return {
      tensor<int64_t>("num_batches_tracked", StoredType::i64, {}, {-7}),
      tensor<float>("conv.weight", StoredType::f32, {2, 3}, {1.5f, -2.0f, 0.0f, kInfinity, 1e-45f, -0.0f}),
      tensor<float>("gr\u00f6\u00dfe", StoredType::f32, {1}, {3.0f}),
      tensor<float>("nothing", StoredType::f32, {0, 4}, {}),
      tensor<int32_t>("labels", StoredType::i32, {2}, {1, -2}),
      tensor<uint16_t>("half", StoredType::bf16, {1, 2, 1}, {0x3f80, 0xc020}),
      tensor<uint8_t>("pixels", StoredType::u8, {3}, {0, 128, 255})};
}

const std::filesystem::path kGolden = LOCKSTEP_GOLDEN_DIR "/python.safetensors";

TEST(ReadSafetensors, ReadsWhatPythonWrites) {
  const Safetensors read = read_safetensors(kGolden);
  EXPECT_TRUE(read.tensors == golden_tensors());
  EXPECT_EQ(read.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(WriteSafetensors, WritesTheVeryBytesThatPythonWrites) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "x", golden_tensors(), {{"format", "pt"}});
  EXPECT_EQ(bytes_of_file(folder.path() / "x"), bytes_of_file(kGolden));
}

TEST(WriteSafetensors, KeepsTheOrderOfNamesAndAlignsTheData) {
  const TemporaryFolder folder;
  std::vector<HostTensor> tensors = golden_tensors();
  std::reverse(tensors.begin(), tensors.end());  // the odd bytes first
  const std::map<std::string, std::string> metadata = {{"a \"quoted\"\n", "\u00e9"}, {"", ""}};
  write_safetensors(folder.path() / "x", tensors, metadata);
  const Safetensors read = read_safetensors(folder.path() / "x");
  EXPECT_TRUE(read.tensors == tensors);
  EXPECT_EQ(read.metadata, metadata);

  const Bytes file = bytes_of_file(folder.path() / "x");
  EXPECT_EQ(file[0] % 8, 0) << "the data begin at a multiple of 8";
  const std::string text(file.begin(), file.end());
  EXPECT_NE(text.find(R"("pixels":{"dtype":"U8","shape":[3],"data_offsets":[48,51]})"), std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]})"),
            std::string::npos)
      << text;
}

TEST(ReadSafetensors, ReadsAFileWithoutTensors) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_safetensors(folder.write("x", file_of("{}"))).tensors.empty());
  write_safetensors(folder.path() / "y", {});
  EXPECT_TRUE(read_safetensors(folder.path() / "y").tensors.empty());
}

TEST(ReadSafetensors, TakesKeysInAnyOrderSpacesEscapesAndTensorsInAnyPlace) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("x", file_of(R"({ "\u0062": {"data_offsets":[2, 4], "shape":[ 2 ], "dtype":"U8"},
    "a":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]}, "__metadata__":{}}    )",
                                4));
  const auto tensors = read_safetensors(path).tensors;
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{1, 2}));
}

TEST(ReadSafetensors, NamesAFileThatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string here = folder.path().string();
  EXPECT_EQ(error_of([&] { read_safetensors(folder.path() / "none"); }),
            here + "/none: cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { read_safetensors(folder.path()); }),
            here + ": found a directory, expected a regular file");
}

TEST(ReadSafetensors, SaysWhatAFileIsThatWasTakenForOne) {
  const auto said = [](const std::string& begin, size_t zeros = 100) {
    Bytes bytes(begin.begin(), begin.end());
    bytes.resize(bytes.size() + zeros);
    const std::string text = complaint(bytes);
    return text.substr(0, text.find(", expected a safetensors file: "));
  };
  using namespace std::string_literals;
  EXPECT_EQ(said("PK\3\4\24\0\0\0"s), "found a zip archive, as PyTorch saves");
  EXPECT_EQ(said("\x80\2\x8a\nl\xfc\x9c"
                 "F\xf9 j\xa8P\x19."s),
            "found a pickle, as PyTorch saved before version 1.6");
  EXPECT_EQ(said("version https://git-lfs.github.com/spec/v1\noid sha256:"),
            "found a git-lfs pointer, not the file");
  EXPECT_EQ(said("<!DOCTYPE html>\n<html>"), "found an HTML page");
  EXPECT_EQ(said("\n  <HTML lang=\"en\">"), "found an HTML page");
  EXPECT_EQ(said("\x1f\x8b\x08\0abcd"s), "found a gzip file");
  EXPECT_EQ(said("\x1f\x8b\x08\0\0\0\0\0"s, 600000), "found a gzip file")
      << "its beginning is a possible length";
  EXPECT_EQ(said("{\"model\": 1, \"a\": 2}"), "found a JSON document");
  EXPECT_EQ(said("\x7f"
                 "ELF\2\1\1\0"s),
            "found a program or a library");
  EXPECT_EQ(said("\x89HDF\r\n\x1a\n"s), "found an HDF5 file, as Keras saves");
  EXPECT_EQ(complaint({}), "found an empty file, expected a safetensors file");
  EXPECT_EQ(complaint({'{', '"', 'a', '"', ':', ' ', '1', '}', '\n'}),
            "found a JSON document, expected a safetensors file: name another file");
}

TEST(ReadSafetensors, RefusesALengthThatTheFileDoesNotHave) {
  EXPECT_EQ(complaint({1, 2, 3}),
            "found 3 bytes, expected a safetensors file, which begins with 8 bytes of header length");
  EXPECT_EQ(complaint({3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}),
            "offset 0: found a header length of 3, expected at most 2 in a file of 10 bytes");
  EXPECT_EQ(
      complaint(Bytes(16, 0xff)),
      "offset 0: found a header length of 18446744073709551615, expected at most 8 in a file of 16 bytes");
  EXPECT_EQ(complaint(Bytes(8, 0)), "offset 8: found no header, expected \"{\", where the header begins");
}

TEST(ReadSafetensors, RefusesAHeaderThatIsLongerThanAnySensibleOne) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0});  // 100,000,001
  std::filesystem::resize_file(path, 200'000'000);  // a hole: takes no room on the disk
  EXPECT_EQ(error_of([&] { read_safetensors(path); }),
            path.string() +
                ": offset 0: found a header length of 100000001, expected at most 100000000 in a file of "
                "200000000 bytes");
}

TEST(ReadSafetensors, RefusesWhatIsNoJsonObject) {
  const std::string begins = ", expected \"{\", where the header begins";
  const std::string no_json = "found text that is no JSON, expected a JSON object to the header's end";
  EXPECT_EQ(header_complaint("[]"), "offset 8: found \"[\"" + begins);
  EXPECT_EQ(header_complaint("\xef\xbb\xbf{}"), "offset 8: found \"\\xef\"" + begins);
  EXPECT_EQ(header_complaint("{\"a\":"), "offset 13: " + no_json);
  EXPECT_EQ(header_complaint("{} x"), "offset 11: " + no_json);
  EXPECT_EQ(header_complaint("{}{}"), "offset 10: " + no_json);
  EXPECT_EQ(header_complaint(std::string("{}\0", 3)), "offset 10: found a zero byte, expected JSON");
  EXPECT_EQ(header_complaint("{\"\xff\":1}"), "offset 10: " + no_json);
  EXPECT_EQ(header_complaint("{\"a\nb\":1}"), "offset 11: " + no_json) << "a raw line break within a name";
}

TEST(ReadSafetensors, RefusesAnyDepthOfNestingAtItsFirstStep) {
  const std::string deep(2'000'000, '[');
  EXPECT_EQ(header_complaint("{\"a\":" + deep), "tensor \"a\": found an array, expected an object");
  EXPECT_EQ(header_complaint("{\"a\":{\"shape\":" + deep),
            "tensor \"a\": shape: found an array, expected an integer from 0 to 9223372036854775807");
  std::string objects;
  for (int i = 0; i < 300'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(header_complaint(objects),
            "tensor \"a\": found the key \"a\", expected dtype, shape and data_offsets");
}

TEST(ReadSafetensors, RefusesValuesOfAnotherKind) {
  EXPECT_EQ(header_complaint(R"({"a":1})"), "tensor \"a\": found 1, expected an object");
  EXPECT_EQ(header_complaint(R"({"a":null})"), "tensor \"a\": found null, expected an object");
  EXPECT_EQ(header_complaint(R"({"__metadata__":[]})"), "__metadata__: found an array, expected an object");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{"k":1.5}})"),
            "__metadata__: \"k\": found 1.5, expected a string");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{"k":{}}})"),
            "__metadata__: \"k\": found an object, expected a string");
  EXPECT_EQ(header_complaint(R"({"a":{"dtype":"F33"}})"),
            "tensor \"a\": dtype: found \"F33\", expected U8, I32, I64, F16, BF16, F32 or F64");
  EXPECT_EQ(header_complaint(R"({"a":{"dtype":["F32"]}})"),
            "tensor \"a\": dtype: found an array, expected U8, I32, I64, F16, BF16, F32 or F64");
  EXPECT_EQ(header_complaint(R"({"a":{"shape":6}})"),
            "tensor \"a\": shape: found 6, expected an array of integers");
  const auto shape = [](const std::string& number) {
    return header_complaint("{\"a\":{\"shape\":[" + number + "]}}");
  };
  const std::string integers = ", expected an integer from 0 to 9223372036854775807";
  EXPECT_EQ(shape("-1"), "tensor \"a\": shape: found -1" + integers);
  EXPECT_EQ(shape("2.0"), "tensor \"a\": shape: found 2.0" + integers);
  EXPECT_EQ(shape("true"), "tensor \"a\": shape: found true" + integers);
  EXPECT_EQ(shape("\"2\""), "tensor \"a\": shape: found \"2\"" + integers);
  EXPECT_EQ(shape("9223372036854775808"), "tensor \"a\": shape: found 9223372036854775808" + integers);
  EXPECT_EQ(shape("18446744073709551616"), "tensor \"a\": shape: found 18446744073709551616" + integers);
  EXPECT_EQ(shape("1,1,1,1,1,1,1,1,1"), "tensor \"a\": shape: found 9 dimensions, expected at most 8");
  EXPECT_EQ(header_complaint(R"({"a":{"data_offsets":[0,12,24]}})"),
            "tensor \"a\": data_offsets: found 3 numbers, expected 2: where it begins and ends");
}

TEST(ReadSafetensors, RefusesMissingUnknownAndRepeatedKeys) {
  EXPECT_EQ(header_complaint(R"({"a":{"dtype":"F32","shape":[6]}})"),
            "tensor \"a\": found no data_offsets, expected dtype, shape and data_offsets");
  EXPECT_EQ(header_complaint(R"({"a":{"offsets":[0,24]}})"),
            "tensor \"a\": found the key \"offsets\", expected dtype, shape and data_offsets");
  EXPECT_EQ(header_complaint(R"({"a":{"shape":[6],"shape":[6]}})"),
            "tensor \"a\": shape: found this key twice, expected each key once");
  const std::string half = entry("a", "F32", "[3]", "[0,12]");
  EXPECT_EQ(header_complaint('{' + half + ',' + half + '}'),
            "tensor \"a\": found this name twice, expected each name once");
  EXPECT_EQ(header_complaint(R"({"__metadata__":{"k":"1","\u006b":"2"}})"),
            "__metadata__: \"k\": found this key twice, expected each key once");
}

TEST(ReadSafetensors, RefusesPlacesThatDoNotFitShapeAndType) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& place) {
    return header_complaint('{' + entry("a", dtype, shape, place) + '}');
  };
  EXPECT_EQ(one("F32", "[2,3]", "[0,20]"),
            "tensor \"a\": found data_offsets [0, 20]: 20 bytes, expected 24 bytes for F32 [2, 3]");
  EXPECT_EQ(one("BF16", "[]", "[0,24]"),
            "tensor \"a\": found data_offsets [0, 24]: 24 bytes, expected 2 bytes for BF16 []");
  EXPECT_EQ(one("F32", "[6]", "[24,0]"),
            "tensor \"a\": found data_offsets [24, 0], expected an end that is not before the beginning");
  EXPECT_EQ(one("F32", "[7]", "[0,28]"),
            "tensor \"a\": found data_offsets [0, 28], expected at most 24, the bytes after the header");
  EXPECT_EQ(
      one("F32", "[1099511627776]", "[0,4398046511104]"),
      "tensor \"a\": found data_offsets [0, 4398046511104], expected at most 24, the bytes after the header");
  const std::string fits = ", expected a size that fits into 64 bits";
  EXPECT_EQ(one("U8", "[4294967296,4294967296]", "[0,0]"),
            "tensor \"a\": found shape [4294967296, 4294967296]" + fits);
  EXPECT_EQ(one("U8", "[0,4294967296,4294967296]", "[0,0]"),
            "tensor \"a\": found shape [0, 4294967296, 4294967296]" + fits);
}

TEST(ReadSafetensors, RefusesOverlapsGapsAndTrailingBytes) {
  const auto two = [](const std::string& first, const std::string& second) {
    return header_complaint('{' + entry("a", "F32", "[3]", first) + ',' + entry("b", "F32", "[3]", second) +
                            '}');
  };
  const std::string after = ", expected a beginning at 12, where the tensor before it ends";
  EXPECT_EQ(two("[0,12]", "[8,20]"), "tensor \"b\": found data_offsets [8, 20]: an overlap" + after);
  EXPECT_EQ(two("[0,12]", "[0,12]"), "tensor \"b\": found data_offsets [0, 12]: an overlap" + after);
  EXPECT_EQ(two("[12,24]", "[4,16]"),
            "tensor \"b\": found data_offsets [4, 16]: a gap, expected a beginning at 0, where "
            "the tensor before it ends");
  EXPECT_EQ(header_complaint('{' + entry("a", "U8", "[12]", "[0,12]") + ',' +
                             entry("b", "U8", "[11]", "[13,24]") + '}'),
            "tensor \"b\": found data_offsets [13, 24]: a gap" + after);
  EXPECT_EQ(header_complaint('{' + entry("a", "F32", "[5]", "[0,20]") + '}'),
            "after the last tensor: found 4 more bytes, expected the end of the file");
}

TEST(ReadSafetensors, KeepsLongAndStrangeNamesInOneShortLine) {
  const std::string message = header_complaint("{\"" + std::string(100'000, 'x') + "\":1}");
  EXPECT_EQ(message, "tensor \"" + std::string(80, 'x') + "\"...: found 1, expected an object");
  EXPECT_EQ(header_complaint(R"({"a\nb\u001b[31m":1})"),
            "tensor \"a\\nb\\x1b[31m\": found 1, expected an object");
}

TEST(ReadSafetensors, RefusesEveryFileThatIsCutShort) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", bytes_of_file(kGolden));
  for (size_t length = std::filesystem::file_size(path); length-- > 0;) {
    SCOPED_TRACE(length);
    std::filesystem::resize_file(path, length);
    error_of([&] { read_safetensors(path); });
  }
}

// Damage may hit a name or a value, which nothing here can see: then the rest must still make sense.
TEST(ReadSafetensors, SurvivesDamage) {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  const TemporaryFolder folder;
  const Bytes whole = bytes_of_file(kGolden);
  int refused = 0;
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    Bytes damaged = whole;
    for (int i = 0; i <= round % 3; ++i) damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
    const auto path = folder.write("x", damaged);
    try {
      size_t bytes = 0;
      for (const HostTensor& tensor : read_safetensors(path).tensors) bytes += tensor.bytes.size();
      EXPECT_LE(bytes, damaged.size());
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(path.string() + ": "), 0u) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);  // of 539 bytes 480 are header, and hardly any of those may change
}

TEST(WriteSafetensors, RefusesTensorsThatMakeNoFileAndWritesNothing) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x";
  const auto refusal = [&](const std::vector<HostTensor>& tensors) {
    const std::string message = error_of([&] { write_safetensors(path, tensors); });
    const std::string start = path.string() + ": ";
    EXPECT_EQ(message.substr(0, start.size()), start);
    return message.substr(std::min(start.size(), message.size()));
  };
  const auto of = [](const std::string& name, std::vector<int64_t> shape, size_t count) {
    return tensor<float>(name, StoredType::f32, std::move(shape), std::vector<float>(count));
  };
  EXPECT_EQ(refusal({of("a", {2}, 2), of("a", {3}, 3)}),
            "tensor \"a\": found this name twice, expected each name once");
  EXPECT_EQ(refusal({of("a", {2, 3}, 5)}),
            "tensor \"a\": found data_offsets [0, 20]: 20 bytes, expected 24 bytes for F32 [2, 3]");
  EXPECT_EQ(refusal({of("a", {-1}, 0)}),
            "tensor \"a\": shape: found -1, expected an integer from 0 to 9223372036854775807");
  EXPECT_EQ(refusal({of("__metadata__", {2}, 2)}),
            "a tensor's name: found \"__metadata__\", expected one that is not reserved");
  EXPECT_EQ(refusal({of("\xff", {2}, 2)}), "\"\\xff\": found bytes that are no UTF-8, expected UTF-8");
  EXPECT_EQ(files_in(folder), 0u);
}

TEST(WriteSafetensors, NamesAPlaceThatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "none" / "x";
  EXPECT_EQ(error_of([&] { write_safetensors(path, {}); }),
            path.string() + ": cannot write: No such file or directory");
}

}  // namespace
}  // namespace lockstep::data
