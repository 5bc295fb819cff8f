// What the rewriting makes of CUDA's own syntax. The sources here are as g++ -E gives them, with __global__
// and __shared__ as hostcuda's header spells them for it.
#include "hostcuda/translate/translate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hostcuda::translate {
namespace {

// Blanks that the rewriting leaves or adds are of no interest.
std::string packed(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c != ' ' && c != '\n') result += c;
  return result;
}

std::string translated(const std::string& source) {
  std::string text = source;
  for (const auto& [name, marker] :
       {std::pair{"__global__", "__hostcuda_global__"}, {"__shared__", "__hostcuda_shared__"}})
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += std::string(marker).size())
      text.replace(at, std::string(name).size(), marker);
  return translate("# 1 \"file.cu\"\n" + text);
}

void expect_translated(const std::string& source, const std::string& wanted) {
  const std::string got = translated(source);
  EXPECT_NE(packed(got).find(packed(wanted)), std::string::npos) << "of:\n"
                                                                 << source << "\ngot:\n"
                                                                 << got << "\nwanted:\n"
                                                                 << wanted;
}

// A launch becomes the configuration, which is `config` and where it stands, and the call.
void expect_launch(const std::string& source, const std::string& name, const std::string& config,
                   const std::string& call) {
  expect_translated("void f() { " + source + " }", "(::hostcuda::plain::configure({\"file.cu\",1,\"" + name +
                                                       "\"}," + config + ")," + call + ")");
}

TEST(TranslateLaunch, TakesTwoToFourParameters) {
  expect_launch("k<<<1, 2>>>(x);", "k", "1,2", "k(x)");
  expect_launch("k<<<g, b, n * sizeof(float)>>>();", "k", "g,b,n*sizeof(float)", "k()");
  expect_launch("k<<<dim3(2, 3), dim3(32, 8), 0, s>>>(a, b[i](c), {1, 2});", "k", "dim3(2,3),dim3(32,8),0,s",
                "k(a,b[i](c),{1,2})");
}

TEST(TranslateLaunch, FindsWhereTheKernelBegins) {
  expect_launch("if (x) ns::k<<<1, 2>>>(y);", "k", "1,2", "ns::k(y)");
  expect_launch("::k<<<1, 2>>>();", "k", "1,2", "::k()");
  expect_launch("k<T, 3><<<1, 2>>>(y);", "k", "1,2", "k<T,3>(y)");
  expect_launch("a::b<int>::k<c<d>, (e > f)><<<1, 2>>>(y);", "k", "1,2", "a::b<int>::k<c<d>,(e>f)>(y)");
  expect_launch("(*pointer)<<<1, 2>>>(y);", "(", "1,2", "(*pointer)(y)");
  expect_launch("table[i].kernel<<<1, 2>>>(y);", "kernel", "1,2", "table[i].kernel(y)");
  expect_launch("return k<<<1, 2>>>(y);", "k", "1,2", "k(y)");
  expect_launch("x ? k<<<1, 2>>>(y) : l<<<3, 4>>>(z);", "l", "3,4", "l(z)");
  expect_launch("else_ = 1; k <<< 1, 2 >>> (y);", "k", "1,2", "k(y)");
}

TEST(TranslateLaunch, FindsWhereTheConfigurationEnds) {
  expect_launch("k<<<size<pair<int, int>>(3), 2>>>(y);", "k", "size<pair<int,int>>(3),2", "k(y)");
  expect_launch("k<<<a >> 3, f<g<h<int>>>(1)>>>(y);", "k", "a>>3,f<g<h<int>>>(1)", "k(y)");
  expect_launch("k<<<(a > b ? a : b), 2>>>(y);", "k", "(a>b?a:b),2", "k(y)");
}

TEST(TranslateLaunch, LooksIntoNoStringAndNoCharacter) {
  const std::string source =
      "const char* s = \"k<<<1, 2>>>(x)\\\"\"; const char* r = R\"x(k<<<1>>>(\")x\"; char c = '<'; "
      "int n = 1'000'000 <<  2;";
  EXPECT_EQ(translated(source), "# 1 \"file.cu\"\n" + source);
}

TEST(TranslateLaunch, KeepsLines) {
  const std::string source = "void f() {\n  k<T,\n    3><<<g,\n      b>>>(a,\n  c);\n}\n";
  const std::string result = translated(source);
  EXPECT_EQ(std::count(result.begin(), result.end(), '\n'),
            std::count(source.begin(), source.end(), '\n') + 1);
  expect_translated("\n\nvoid f() { k<<<1, 2>>>(); }", "{\"file.cu\",3,\"k\"}");
}

TEST(TranslateLaunch, RefusesWhatIsNone) {
  EXPECT_THROW(translated("int x = a <<< b;"), Refused);
  EXPECT_THROW(translated("void f() { k<<<1, 2>>>; }"), Refused);
}

TEST(TranslateKernel, BecomesAHostFunctionThatEnqueuesItsBody) {
  expect_translated(
      "__global__ void k(int* x, float y) { x[0] = y; }",
      "void k(int* x, float y) { ::hostcuda::plain::kernel_body(\"k\", [=]() mutable { x[0] = y; }); }"
      "static const ::hostcuda::plain::ListedKernel hostcuda_listed_k(&k);");
  expect_translated(
      "extern \"C\" __global__ void __attribute__((noinline)) k(void (*f)(int)) {}",
      "k(void (*f)(int)) { ::hostcuda::plain::kernel_body(\"k\", [=]() mutable { }); } static const");
  expect_translated("namespace a::b { static __global__ void k() { if (x) { return; } } }",
                    "{ if (x) { return; }  }); }");
}

TEST(TranslateKernel, OfATemplateOrOfSeveralOfOneNameIsNotListed) {
  for (const std::string source : {"template <typename T> __global__ void k(T* x) { }",
                                   "__global__ void k(int x) { } __global__ void k(float x) { }",
                                   "struct S { static __global__ void k(int x) { } };"}) {
    EXPECT_EQ(translated(source).find("ListedKernel"), std::string::npos) << translated(source);
    EXPECT_NE(translated(source).find("kernel_body"), std::string::npos) << translated(source);
  }
}

TEST(TranslateKernel, ThatIsOnlyDeclaredStaysADeclaration) {
  EXPECT_EQ(packed(translated("__global__ void k(int* x, int n = 3);")),
            packed("# 1 \"file.cu\"\nvoid k(int* x, int n = 3);"));
}

TEST(TranslateKernel, CastToAnAddressIsListed) {
  expect_translated("template <int n> __global__ void k(int* x) { } const void* p = (const void*)k<3>;",
                    "(const void*)::hostcuda::plain::kernel_address(k<3>)");
  expect_translated("__global__ void k(int* x) { } void* p = (void *)&k;",
                    "(void *)::hostcuda::plain::kernel_address(&k)");
  expect_translated("void* p = (void*)other;", "void* p = (void*)other;");
}

TEST(TranslateShared, BecomesAVariableOfTheThreadThatRunsTheBlock) {
  expect_translated("void f() { __shared__ float x[32][33]; }", "{ static thread_local float x[32][33]; }");
  expect_translated("void f() { static __shared__ int x; }", "{ static thread_local int x; }");
  expect_translated("void f() { volatile __shared__ int x[3], y; }",
                    "volatile static thread_local int x[3], y;");
}

TEST(TranslateShared, OfDynamicSizeBecomesAPointer) {
  expect_translated("void f() { extern __shared__ float x[]; }",
                    "float* x = ::hostcuda::plain::DynamicShared<float>();");
  expect_translated(
      "void f() { extern volatile __shared__ unsigned char x[]; }",
      "volatile unsigned char* x = ::hostcuda::plain::DynamicShared<volatile unsigned char>();");
  expect_translated(
      "template <class T> void f() { extern __shared__ __attribute__((aligned(16))) a::b<T> x[]; }",
      "__attribute__((aligned(16))) a::b<T>* x =");
  expect_translated(
      "void f() { extern __shared__ int x[][16]; }",
      "int (*x)[16] = reinterpret_cast<int (*)[16]>(::hostcuda::plain::DynamicShared<int>().data());");
  expect_translated("extern __shared__ float x[];",
                    "static const ::hostcuda::plain::DynamicShared<float> x{};");
}

std::string refusal_of(const std::string& source) {
  try {
    translated(source);
  } catch (const Refused& refused) {
    return refused.what();
  }
  return "";
}

TEST(TranslateRefused, NamesWhatIsNotThereAndWhatToDo) {
  EXPECT_EQ(refusal_of("void f() { asm(\"nop\"); }"),
            "file.cu:1: `asm`: inline PTX is code for a GPU alone: write it in C++ (intrinsics like "
            "__shfl_sync are there)\n");
  for (const char* source :
       {"cudaTextureObject_t t;", "texture<float> t;", "int x = tex2D<float>(t, 1, 2);",
        "cudaGraphicsResource* r;", "CUdevice d;", "nvrtcProgram p;", "thrust::sort(a, b);",
        "nvcuda::wmma::fragment<int> f;", "curandState s;", "cufftHandle h;"})
    EXPECT_NE(refusal_of(source).find("not there"), std::string::npos) << source;
}

TEST(TranslateRefused, LeavesOtherNamesAlone) {
  for (const char* source : {"float texture = 1;", "int cubic, thrust;", "cudaMemcpy(a, b, c, d);",
                             "int cufftsize;", "cublasHandle_t h;", "void cuMember();"})
    EXPECT_EQ(refusal_of(source), "") << source;
}

TEST(TranslateRefused, AHeaderOfWhatIsNotThereIsNamedWhereItIsIncluded) {
  const std::string text =
      "# 1 \"file.cu\"\nint x;\n# 1 \"/usr/include/curand_kernel.h\" 1 3\nint y;\n# 3 \"file.cu\" 2\n";
  try {
    translate(text);
    FAIL() << "not refused";
  } catch (const Refused& refused) {
    EXPECT_EQ(std::string(refused.what()).find("file.cu:1: `curand_kernel.h`: cuRAND is not there"), 0u)
        << refused.what();
  }
}

TEST(TranslateRefused, IsNothingInSystemHeaders) {
  EXPECT_NO_THROW(translate("# 1 \"/usr/include/x.h\" 1 3\nvoid f() { asm(\"nop\"); }\n"));
  EXPECT_THROW(
      translate("# 1 \"/usr/include/x.h\" 1 3\nint x;\n# 3 \"file.cu\" 2\nvoid f() { asm(\"nop\"); }\n"),
      Refused);
}

}  // namespace
}  // namespace hostcuda::translate
