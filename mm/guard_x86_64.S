/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The copies and atomics whose faults the guard survives (guard.c). Every instruction that touches
 * memory of unknown worth lies in one of the ranges named at the end of its function.
 *
 * size_t guard_copy_sse(void *dst, const void *src, size_t len), guard_copy_avx: ascending; stores are
 * aligned to their size (bytes, 2, 4, then 8; in the middle 16 or 32), and the last 8 bytes or less
 * are stored by themselves after all others. Returns the bytes not copied, exact to the word. If src
 * has dst's alignment modulo 8 its loads are aligned as well, so no 8-byte word is torn on either
 * side; for others guard.c goes through a buffer.
 *
 * A fault in one of the faster parts resumes at the loop of single words, which gets to the very word
 * that faults; a fault there returns what is left.
 */
	.text

#define STRING_MIN 8192

	.macro GLOBAL name
	.globl	\name
	.hidden	\name
\name:
	.endm

	.macro COPY name, step, vec
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 5
\name:
	.cfi_startproc
	endbr64
GLOBAL \name\()_begin
	mov	%rdx, %rax
	test	$7, %dil
	jnz	10f
1:	cmp	$(2 * \step + 40), %rax
	jae	20f
	/* words, by four and by one; the latter is also where a fault elsewhere comes out */
GLOBAL \name\()_words
	cmp	$32, %rax
	jb	8f
GLOBAL \name\()_four_begin
7:	mov	(%rsi), %rcx
	mov	8(%rsi), %rdx
	mov	16(%rsi), %r8
	mov	24(%rsi), %r9
	mov	%rcx, (%rdi)
	mov	%rdx, 8(%rdi)
	mov	%r8, 16(%rdi)
	mov	%r9, 24(%rdi)
GLOBAL \name\()_four_end
	add	$32, %rsi
	add	$32, %rdi
	sub	$32, %rax
	cmp	$32, %rax
	jae	7b
GLOBAL \name\()_words_one
8:	cmp	$8, %rax
	jb	3f
2:	mov	(%rsi), %rcx
	mov	%rcx, (%rdi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$8, %rax
	cmp	$8, %rax
	jae	2b
	/* tail of less than 8 */
3:	test	%eax, %eax
	jz	9f
	test	$4, %al
	jz	4f
	mov	(%rsi), %ecx
	mov	%ecx, (%rdi)
	add	$4, %rsi
	add	$4, %rdi
	sub	$4, %rax
4:	test	$2, %al
	jz	5f
	movzwl	(%rsi), %ecx
	mov	%cx, (%rdi)
	add	$2, %rsi
	add	$2, %rdi
	sub	$2, %rax
5:	test	$1, %al
	jz	9f
	movzbl	(%rsi), %ecx
	mov	%cl, (%rdi)
	dec	%rax
9:	ret
	/* head: up to the next word of dst, while there is that much */
10:	test	$1, %dil
	jz	11f
	test	%rax, %rax
	jz	9b
	movzbl	(%rsi), %ecx
	mov	%cl, (%rdi)
	inc	%rsi
	inc	%rdi
	dec	%rax
11:	test	$2, %dil
	jz	12f
	cmp	$2, %rax
	jb	3b
	movzwl	(%rsi), %ecx
	mov	%cx, (%rdi)
	add	$2, %rsi
	add	$2, %rdi
	sub	$2, %rax
12:	test	$4, %dil
	jz	1b
	cmp	$4, %rax
	jb	3b
	mov	(%rsi), %ecx
	mov	%ecx, (%rdi)
	add	$4, %rsi
	add	$4, %rdi
	sub	$4, %rax
	jmp	1b
	/* words up to a vector's boundary */
20:	test	$(\step / 4 - 1), %dil
	jz	21f
	mov	(%rsi), %rcx
	mov	%rcx, (%rdi)
	add	$8, %rsi
	add	$8, %rdi
	sub	$8, %rax
	jmp	20b
GLOBAL \name\()_end
	/* the middle: leaves at least 8 bytes */
GLOBAL \name\()_middle_begin
21:	cmp	$STRING_MIN, %rax
	jae	30f
22:
	\vec
	add	$\step, %rsi
	add	$\step, %rdi
	sub	$\step, %rax
	cmp	$(\step + 8), %rax
	jae	22b
GLOBAL \name\()_middle_end
	.ifc \vec, VEC_AVX
	vzeroupper
	.endif
	jmp	\name\()_words
	/* long: words by the CPU's own loop, all but the last 8 to 15 bytes */
30:	lea	-8(%rax), %rcx
	shr	$3, %rcx
	lea	(, %rcx, 8), %rdx
	sub	%rdx, %rax
GLOBAL \name\()_string_begin
	rep movsq
GLOBAL \name\()_string_end
	jmp	\name\()_words
GLOBAL \name\()_string_fault
	lea	(%rax, %rcx, 8), %rax
	jmp	\name\()_words_one
GLOBAL \name\()_fault
	ret
GLOBAL \name\()_middle_fault
	.ifc \vec, VEC_AVX
	vzeroupper
	.endif
	jmp	\name\()_words_one
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.macro VEC_SSE
	movdqu	(%rsi), %xmm0
	movdqu	16(%rsi), %xmm1
	movdqu	32(%rsi), %xmm2
	movdqu	48(%rsi), %xmm3
	movdqa	%xmm0, (%rdi)
	movdqa	%xmm1, 16(%rdi)
	movdqa	%xmm2, 32(%rdi)
	movdqa	%xmm3, 48(%rdi)
	.endm

	.macro VEC_AVX
	vmovdqu	(%rsi), %ymm0
	vmovdqu	32(%rsi), %ymm1
	vmovdqu	64(%rsi), %ymm2
	vmovdqu	96(%rsi), %ymm3
	vmovdqa	%ymm0, (%rdi)
	vmovdqa	%ymm1, 32(%rdi)
	vmovdqa	%ymm2, 64(%rdi)
	vmovdqa	%ymm3, 96(%rdi)
	.endm

	COPY guard_copy_sse, 64, VEC_SSE
	COPY guard_copy_avx, 128, VEC_AVX

	/* int guard_cmpxchg64(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *orig) */
	.globl	guard_cmpxchg64
	.hidden	guard_cmpxchg64
	.type	guard_cmpxchg64, @function
guard_cmpxchg64:
	.cfi_startproc
	endbr64
	mov	%rsi, %rax
GLOBAL guard_cmpxchg64_begin
	lock cmpxchg %rdx, (%rdi)
GLOBAL guard_cmpxchg64_end
	mov	%rax, (%rcx)
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	guard_cmpxchg64, . - guard_cmpxchg64

	/* int guard_fetch_add64(uint64_t *p, uint64_t add, uint64_t *orig) */
	.globl	guard_fetch_add64
	.hidden	guard_fetch_add64
	.type	guard_fetch_add64, @function
guard_fetch_add64:
	.cfi_startproc
	endbr64
GLOBAL guard_fetch_add64_begin
	lock xadd %rsi, (%rdi)
GLOBAL guard_fetch_add64_end
	mov	%rsi, (%rdx)
	xor	%eax, %eax
	ret
GLOBAL guard_atomic_fault
	mov	$-14, %eax		/* -EFAULT */
	ret
	.cfi_endproc
	.size	guard_fetch_add64, . - guard_fetch_add64

	.section .note.GNU-stack, "", @progbits
