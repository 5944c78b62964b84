use super::*;

fn bytes(insn: Insn) -> [u8; 8] {
    let [off, imm] = [
        insn.off.to_le_bytes().to_vec(),
        insn.imm.to_le_bytes().to_vec(),
    ];
    [vec![insn.code, insn.regs], off, imm]
        .concat()
        .try_into()
        .unwrap()
}

/// Encodings as RFC 9669 has them, little-endian, and as every disassembler reads them.
#[test]
fn instructions_are_written_as_the_standard_has_them() {
    let mut asm = Assembler::default();
    asm.copy(Reg::R6, Reg::R1);
    asm.set(Reg::R0, 2);
    asm.add(Reg::R2, -16);
    asm.and(Reg::R3, 0xf);
    asm.swap_16_if_little(Reg::R1);
    asm.load(Size::Word, Reg::R7, Reg::R6, 4);
    asm.load(Size::Half, Reg::R1, Reg::R7, 12);
    asm.load(Size::Byte, Reg::R1, Reg::R7, 23);
    asm.store(Size::Word, Reg::Fp, -4, Reg::R1);
    asm.store_imm(Size::Word, Reg::Fp, -8, 7);
    asm.load_map(Reg::R1, 9);
    asm.call(51);
    asm.exit();
    let found: Vec<[u8; 8]> = asm.finish().into_iter().map(bytes).collect();
    assert_eq!(
        found,
        [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 2, 0, 0, 0],
            [0x07, 0x02, 0, 0, 0xf0, 0xff, 0xff, 0xff],
            [0x57, 0x03, 0, 0, 0xf, 0, 0, 0],
            [0xdc, 0x01, 0, 0, 16, 0, 0, 0],
            [0x61, 0x67, 4, 0, 0, 0, 0, 0],
            [0x69, 0x71, 12, 0, 0, 0, 0, 0],
            [0x71, 0x71, 23, 0, 0, 0, 0, 0],
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
            [0x62, 0x0a, 0xf8, 0xff, 7, 0, 0, 0],
            [0x18, 0x11, 0, 0, 9, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 51, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ]
    );
}

#[test]
fn jumps_are_counted_from_the_next_instruction_both_ways() {
    let mut asm = Assembler::default();
    let (back, forth) = (asm.label(), asm.label());
    asm.bind(back);
    asm.jump_if(Reg::R1, When::Equal, 0xffff_fffe, forth);
    asm.jump_if_reg(Reg::R4, When::Above, Reg::R8, forth);
    asm.jump_if_some(Reg::R0, back);
    asm.jump(back);
    asm.bind(forth);
    asm.exit();
    let found: Vec<[u8; 8]> = asm.finish().into_iter().map(bytes).collect();
    assert_eq!(
        found[..4],
        [
            [0x16, 0x01, 3, 0, 0xfe, 0xff, 0xff, 0xff],
            [0x2d, 0x84, 2, 0, 0, 0, 0, 0],
            [0x55, 0x00, 0xfd, 0xff, 0, 0, 0, 0],
            [0x05, 0x00, 0xfc, 0xff, 0, 0, 0, 0],
        ]
    );
}

#[test]
#[should_panic(expected = "every label that is used has a place")]
fn a_jump_to_nowhere_is_a_mistake() {
    let mut asm = Assembler::default();
    let nowhere = asm.label();
    asm.jump(nowhere);
    asm.finish();
}
