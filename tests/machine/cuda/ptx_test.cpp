// Instructions of PTX against what NVIDIA's "PTX ISA" says of them, and what it leaves undefined as a fault.
#include "cuda/ptx.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "cuda/processor.h"

namespace shiftron::machine {
namespace {

using ::testing::HasSubstr;

constexpr int kLanesOfTest = 32;

std::string module_of(const std::string& body, const std::string& before = "") {
  return R"(
//
.version 9.0
.target sm_90
.address_size 64
)" + before +
         R"(
.visible .entry kernel(
	.param .u64 kernel_param_0, // where results go, eight bytes a thread
	.param .u64 kernel_param_1
)
.maxntid 32, 1, 1
{
	.reg .pred 	%p<9>;
	.reg .b16 	%rs<9>;
	.reg .b32 	%r<99>;
	.reg .f32 	%f<9>;
	.reg .b64 	%rd<99>;
	.reg .f64 	%fd<9>;
	ld.param.u64 	%rd90, [kernel_param_0];
	ld.param.u64 	%rd1, [kernel_param_1];
	mov.u32 	%r90, %tid.x;
	mul.wide.u32 	%rd91, %r90, 8;
	add.s64 	%rd92, %rd90, %rd91;
)" + body + R"(
	st.global.u64 	[%rd92], %rd2;
	ret;
}
)";
}

// What each thread leaves in %rd2, with `value` in %rd1.
std::vector<uint64_t> all_of(const std::string& body, uint64_t value = 0, const std::string& before = "") {
  const ptx::Module module = ptx::read(module_of(body, before), "test.ptx");
  std::vector<uint64_t> results(kLanesOfTest, 0xDEAD);
  uint64_t* const first = results.data();
  std::vector<std::vector<std::byte>> parameters(2, std::vector<std::byte>(8));
  std::memcpy(parameters[0].data(), &first, 8);
  std::memcpy(parameters[1].data(), &value, 8);
  execute_grid("test", 1, 1, kLanesOfTest, [&] { ptx::execute(*module.functions.at("kernel"), parameters, 64); }, 64);
  return results;
}
uint64_t one_of(const std::string& body, uint64_t value = 0, const std::string& before = "") {
  return all_of(body, value, before)[0];
}
uint64_t bits_of_number(double value) {
  return std::bit_cast<uint64_t>(value);
}
uint64_t bits_of_number(float value) {
  return std::bit_cast<uint32_t>(value);
}

TEST(Ptx, IntegersHaveTheirWidthAndSign) {
  EXPECT_EQ(one_of("add.s32 %r1, 2147483647, 1; cvt.s64.s32 %rd2, %r1;"), 0xFFFFFFFF80000000u);
  EXPECT_EQ(one_of("add.s32 %r1, 2147483647, 1; cvt.u64.u32 %rd2, %r1;"), 0x80000000u);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; cvt.u64.u32 %rd2, %r1;", 0x1234567890u), 0x34567890u);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; { .reg .b16 tmp; mov.b32 {tmp, %rs1}, %r1; } cvt.u64.u16 %rd2, %rs1;", 0x12345678u), 0x1234u);
  EXPECT_EQ(one_of("div.s64 %rd2, %rd1, 3;", static_cast<uint64_t>(-7)), static_cast<uint64_t>(-2));
  EXPECT_EQ(one_of("rem.s64 %rd2, %rd1, 3;", static_cast<uint64_t>(-7)), static_cast<uint64_t>(-1));
  EXPECT_EQ(one_of("div.u64 %rd2, %rd1, 3;", static_cast<uint64_t>(-7)), static_cast<uint64_t>(-7) / 3);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; shr.s32 %r2, %r1, 40; cvt.u64.u32 %rd2, %r2;", 0x80000000u), 0xFFFFFFFFu);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; shr.u32 %r2, %r1, 40; cvt.u64.u32 %rd2, %r2;", 0x80000000u), 0u);
  EXPECT_EQ(one_of("shl.b64 %rd2, %rd1, 64;", 1), 0u);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; mul.wide.s32 %rd2, %r1, -3;", 0x80000000u), 3ull << 31);
  EXPECT_EQ(one_of("cvt.u32.u64 %r1, %rd1; mul.hi.u32 %r2, %r1, 3; cvt.u64.u32 %rd2, %r2;", 0x80000000u), 1u);
  EXPECT_EQ(one_of("max.s64 %rd2, %rd1, 5;", static_cast<uint64_t>(-1)), 5u);
  EXPECT_EQ(one_of("max.u64 %rd2, %rd1, 5;", static_cast<uint64_t>(-1)), static_cast<uint64_t>(-1));
}

TEST(Ptx, CarriesGoFromOneWordToTheNext) {
  const std::string split = "cvt.u32.u64 %r1, %rd1; shr.u64 %rd3, %rd1, 32; cvt.u32.u64 %r2, %rd3;";
  const std::string join = "mov.b64 %rd2, {%r3, %r4};";
  const uint64_t value = 0x12345678FFFFFFFFu;
  EXPECT_EQ(one_of(split + "add.cc.u32 %r3, %r1, 7; addc.u32 %r4, %r2, 0;" + join, value), value + 7);
  EXPECT_EQ(one_of(split + "sub.cc.u32 %r3, 3, %r1; subc.u32 %r4, 0, %r2;" + join, value), 3 - value);
  EXPECT_EQ(one_of(split + "mad.lo.cc.u32 %r3, %r1, 5, 6; madc.hi.u32 %r4, %r1, 5, 0;" + join, value), 0xFFFFFFFFull * 5 + 6);
}

TEST(Ptx, BitsAreCountedAndMoved) {
  const std::string low = "cvt.u32.u64 %r1, %rd1;", out = "cvt.u64.u32 %rd2, %r2;";
  EXPECT_EQ(one_of(low + "brev.b32 %r2, %r1;" + out, 0b1011), 0xD0000000u);
  EXPECT_EQ(one_of(low + "bfind.shiftamt.u32 %r2, %r1;" + out, 0x00010000), 15u);
  EXPECT_EQ(one_of(low + "bfind.shiftamt.u32 %r2, %r1;" + out, 0), 0xFFFFFFFFu);
  EXPECT_EQ(one_of("clz.b64 %r2, %rd1;" + out, 0x00010000), 47u);
  EXPECT_EQ(one_of(low + "shr.u64 %rd3, %rd1, 32; cvt.u32.u64 %r3, %rd3; shf.l.wrap.b32 %r2, %r1, %r3, 40;" + out,
                   0x1122334455667788u),
            0x22334455u);
  EXPECT_EQ(one_of(low + "mov.b32 %r3, 1432778632; prmt.b32 %r2, %r1, %r3, 0xB4F0U;" + out, 0x808182FFu), 0xFF8800FFu);
}

TEST(Ptx, NumbersAreRoundedAsTheInstructionSays) {
  const std::string in = "cvt.u32.u64 %r1, %rd1; mov.b32 %f1, %r1;", out = "mov.b32 %r2, %f2; cvt.u64.u32 %rd2, %r2;";
  const float third = 1.0f / 3.0f;
  EXPECT_EQ(one_of(in + "fma.rm.f32 %f2, %f1, 0f3F800000, 0f32000000;" + out, bits_of_number(1.0f)), bits_of_number(1.0f));
  EXPECT_EQ(one_of(in + "fma.rn.f32 %f2, %f1, %f1, 0fBF800000;" + out, bits_of_number(third)), bits_of_number(std::fma(third, third, -1.0f)));
  EXPECT_EQ(one_of(in + "mul.f32 %f3, %f1, %f1; add.f32 %f2, %f3, 0fBF800000;" + out, bits_of_number(third)),
            bits_of_number(static_cast<float>(third * third) + -1.0f));
  EXPECT_EQ(one_of(in + "max.f32 %f2, %f1, 0f40000000;" + out, bits_of_number(NAN)), bits_of_number(2.0f));
  EXPECT_EQ(one_of(in + "cvt.sat.f32.f32 %f2, %f1;" + out, bits_of_number(NAN)), 0u);
  EXPECT_EQ(one_of(in + "cvt.sat.f32.f32 %f2, %f1;" + out, bits_of_number(7.0f)), bits_of_number(1.0f));
  EXPECT_EQ(one_of(in + "cvt.rni.f32.f32 %f2, %f1;" + out, bits_of_number(2.5f)), bits_of_number(2.0f));
  EXPECT_EQ(one_of(in + "ex2.approx.ftz.f32 %f2, %f1;" + out, bits_of_number(-130.0f)), 0u);
  EXPECT_EQ(one_of(in + "ex2.approx.f32 %f2, %f1;" + out, bits_of_number(-130.0f)), bits_of_number(std::ldexp(1.0f, -130)));
  EXPECT_EQ(one_of(in + "cvt.rn.bf16.f32 %rs1, %f1; cvt.u64.u16 %rd2, %rs1;", 0x3F808000u), 0x3F80u);
  EXPECT_EQ(one_of(in + "cvt.rn.bf16.f32 %rs1, %f1; cvt.u64.u16 %rd2, %rs1;", 0x3F818000u), 0x3F82u);
  EXPECT_EQ(one_of("cvt.u16.u64 %rs1, %rd1; {cvt.f32.bf16 %f2, %rs1;} {mov.b32 %f3, {0,%rs1};}" + out, 0x4040), bits_of_number(3.0f));
  const std::string wide = "mov.b64 %fd1, %rd1;", back = "mov.b64 %rd2, %fd2;";
  EXPECT_EQ(one_of(wide + "cvt.rn.f32.f64 %f1, %fd1; cvt.f64.f32 %fd2, %f1;" + back, bits_of_number(0.1)), bits_of_number(double{0.1f}));
  EXPECT_EQ(one_of(wide + "cvt.rzi.f64.f64 %fd2, %fd1;" + back, bits_of_number(-1.75)), bits_of_number(-1.0));
  EXPECT_EQ(one_of(wide + "cvt.rni.s32.f64 %r1, %fd1; cvt.s64.s32 %rd2, %r1;", bits_of_number(1e20)), 0x7FFFFFFFu);
  EXPECT_EQ(one_of("cvt.rn.f64.s64 %fd2, %rd1;" + back, static_cast<uint64_t>(-5)), bits_of_number(-5.0));
  EXPECT_EQ(one_of("cvt.rn.f64.u64 %fd2, %rd1;" + back, static_cast<uint64_t>(-5)), bits_of_number(18446744073709551611.0));
}

TEST(Ptx, ComparisonsKnowWhatIsNoNumber) {
  const auto holds = [](const std::string& comparison, double a) {
    return one_of("mov.b64 %fd1, %rd1; setp." + comparison + ".f64 %p1, %fd1, 0d0000000000000000; selp.b64 %rd2, 1, 0, %p1;",
                  bits_of_number(a)) == 1;
  };
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge", "num"}) EXPECT_FALSE(holds(name, NAN)) << name;
  for (const char* name : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"}) EXPECT_TRUE(holds(name, NAN)) << name;
  EXPECT_TRUE(holds("ltu", -1.0) && holds("ne", -1.0) && holds("leu", 0.0) && holds("num", 0.0));
  EXPECT_FALSE(holds("gtu", -1.0) || holds("neu", 0.0) || holds("nan", 0.0));
  EXPECT_EQ(one_of("setp.lt.s64 %p1, %rd1, 0; selp.b64 %rd2, 1, 0, %p1;", static_cast<uint64_t>(-1)), 1u);
  EXPECT_EQ(one_of("setp.lt.u64 %p1, %rd1, 1; selp.b64 %rd2, 1, 0, %p1;", static_cast<uint64_t>(-1)), 0u);
}

TEST(Ptx, ThreadsGoTheirOwnWays) {
  const std::vector<uint64_t> counted = all_of(R"(
	mov.u64 	%rd2, 0;
$L__loop:
	setp.ge.u32 	%p1, %r90, 8;
	@%p1 bra 	$L__end;
	add.s64 	%rd2, %rd2, 3;
	add.s32 	%r90, %r90, 1;
	bra.uni 	$L__loop;
$L__end:
	@!%p1 bra 	$L__loop;
)");
  for (uint64_t i = 0; i < kLanesOfTest; ++i) EXPECT_EQ(counted[i], i < 8 ? 3 * (8 - i) : 0) << i;
}

TEST(Ptx, LanesMeet) {
  const auto shuffled = [](const std::string& mode, int by, int clamp) {
    return all_of("add.s32 %r1, %r90, 100; shfl.sync." + mode + ".b32 %r2|%p1, %r1, " + std::to_string(by) + ", " +
                  std::to_string(clamp) + ", -1; cvt.u64.u32 %rd2, %r2; @%p1 add.s64 %rd2, %rd2, 1000;");
  };
  for (int i = 0; i < kLanesOfTest; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto from = [](int lane, bool inside) { return static_cast<uint64_t>(100 + lane + (inside ? 1000 : 0)); };
    EXPECT_EQ(shuffled("bfly", 5, 31)[at], from(i ^ 5, true)) << i;
    EXPECT_EQ(shuffled("idx", 35, 31)[at], from(3, true)) << i;
    EXPECT_EQ(shuffled("idx", 3, 24 << 8 | 31)[at], from((i & 24) + 3, true)) << i;
    EXPECT_EQ(shuffled("up", 4, 0)[at], i < 4 ? from(i, false) : from(i - 4, true)) << i;
    EXPECT_EQ(shuffled("down", 4, 31)[at], i >= 28 ? from(i, false) : from(i + 4, true)) << i;
  }
  EXPECT_EQ(one_of("setp.gt.u32 %p1, %r90, 29; vote.sync.ballot.b32 %r1, %p1, -1; cvt.u64.u32 %rd2, %r1;"), 0xC0000000u);
}

TEST(Ptx, BlocksShareMemory) {
  const std::string own = R"(
	.shared .align 8 .b8 slots[256];
	mov.u32 	%r1, slots;
	shl.b32 	%r2, %r90, 3;
	add.s32 	%r3, %r1, %r2;
	cvt.u64.u32 	%rd3, %r90;
	st.shared.u64 	[%r3], %rd3;
	bar.sync 	0;
	ld.shared.u64 	%rd2, [%r1+)";
  EXPECT_EQ(one_of(own + "248];"), 31u);
  EXPECT_THROW(one_of(own + "256];"), Error);
  EXPECT_THROW(one_of(own + "4];"), Error) << "not aligned";
  const std::string barrier = "bar.sync 	0;";
  std::string of_warp = own;
  of_warp.replace(own.find(barrier), barrier.size(), "bar.warp.sync 	-1;");
  EXPECT_EQ(one_of(of_warp + "248];"), 31u);
  const std::string of_launch = R"(
	mov.u32 	%r1, bytes_of_launch;
	setp.eq.s32 	%p1, %r90, 0;
	@%p1 st.shared.u64 	[%r1+56], %rd1;
	bar.sync 	0;
	ld.shared.u64 	%rd2, [bytes_of_launch+)";
  const std::string declared = ".extern .shared .align 16 .b8 bytes_of_launch[];";
  EXPECT_EQ(all_of(of_launch + "56];", 77, declared)[9], 77u);
  EXPECT_THROW(all_of(of_launch + "64];", 77, declared), Error);
}

TEST(Ptx, EarlierKernelsAreAwaited) {
  EXPECT_EQ(one_of("griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u64 %rd2, 7;"), 7u);
}

TEST(Ptx, FunctionsAreCalled) {
  const std::string square_and_one = R"(
.func  (.param .align 8 .b8 func_retval0[16]) square
(
	.param .b64 square_param_0
)
;
.global .align 8 .b8 table[16] = {1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 0, 0};
.func  (.param .align 8 .b8 func_retval0[16]) square(
	.param .b64 square_param_0
)
{
	.local .align 8 .b8 	__local_depot1[8];
	.reg .b64 	%SPL, %rd<5>;
	mov.u64 	%SPL, __local_depot1;
	ld.param.u64 	%rd1, [square_param_0];
	mul.lo.s64 	%rd2, %rd1, %rd1;
	st.local.u64 	[%SPL], %rd2;
	ld.local.u64 	%rd3, [%SPL];
	st.param.u64 	[func_retval0+0], %rd3;
	ld.global.u64 	%rd4, [table+8];
	st.param.u64 	[func_retval0+8], %rd4;
	ret;
}
)";
  EXPECT_EQ(one_of(R"(
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.u64 	[param0+0], %rd1;
	.param .align 8 .b8 retval0[16];
	call.uni (retval0), 
	square, 
	(
	param0
	);
	ld.param.u64 	%rd3, [retval0+0];
	ld.param.u64 	%rd4, [retval0+8];
	} // callseq 0
	add.s64 	%rd2, %rd3, %rd4;
)",
                   9, square_and_one),
            81u + 0x105u);
}

TEST(Ptx, WhatIsNotKnownIsRefused) {
  const auto told = [](const std::string& body) -> std::string {
    try {
      ptx::read(module_of(body), "test.ptx");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(told("tanh.approx.f32 %f1, %f2;"), HasSubstr("test.ptx: tanh.approx.f32 %f1, %f2"));
  EXPECT_THAT(told("add.sat.s32 %r1, %r2, %r3;"), HasSubstr("the word .sat"));
  EXPECT_THAT(told("mov.u32 %r1, %clock;"), HasSubstr("the register %clock"));
  EXPECT_THAT(told("mov.u32 %r1, %clusterid.x;"), HasSubstr("the register %clusterid.x"));
  EXPECT_THAT(told("mov.u64 %rd1, nowhere;"), HasSubstr("the name nowhere"));
  EXPECT_THAT(told("bra $L__nowhere;"), HasSubstr("no label $L__nowhere"));
  EXPECT_THAT(told("bar.sync 1, 64;"), HasSubstr("a barrier of some threads"));
  EXPECT_THAT(told("bar.warp.sync 3;"), HasSubstr("a barrier of some lanes"));
  EXPECT_THAT(told("add.s32 %r1, %r2;"), HasSubstr("1 operands"));
}

}  // namespace
}  // namespace shiftron::machine
