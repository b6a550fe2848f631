const _: () = {
    use ::farfield::__private::delegation as __de;
    impl<T: ::farfield::__private::delegation::Message> __de::Message for Change<T> {
        const FINGERPRINT: u64 = ::farfield::__private::fingerprint::message(
            "Change",
            &[
                ("Clear", &[]),
                (
                    "Push",
                    &[
                        ("0", <T as __de::Message>::FINGERPRINT),
                        ("1", <u16 as __de::Message>::FINGERPRINT),
                    ],
                ),
                (
                    "Replace",
                    &[
                        ("at", <u64 as __de::Message>::FINGERPRINT),
                        ("in", <Trust<Log> as __de::Message>::FINGERPRINT),
                    ],
                ),
            ],
        );
        #[allow(unused_variables)]
        fn write(self, to: &mut __de::Writer<'_>) {
            match self {
                Self::Clear {} => {
                    to.put(0);
                }
                Self::Push { 0: __0, 1: __1 } => {
                    to.put(1);
                    <T as __de::Message>::write(__0, to);
                    <u16 as __de::Message>::write(__1, to);
                }
                Self::Replace { at: __0, r#in: __1 } => {
                    to.put(2);
                    <u64 as __de::Message>::write(__0, to);
                    <Trust<Log> as __de::Message>::write(__1, to);
                }
            }
        }
        #[allow(unused_variables)]
        fn read(from: &mut __de::Reader<'_>) -> ::core::option::Option<Self> {
            match from.take()? {
                0 => ::core::option::Option::Some(Self::Clear {}),
                1 => {
                    ::core::option::Option::Some(Self::Push {
                        0: <T as __de::Message>::read(from)?,
                        1: <u16 as __de::Message>::read(from)?,
                    })
                }
                2 => {
                    ::core::option::Option::Some(Self::Replace {
                        at: <u64 as __de::Message>::read(from)?,
                        r#in: <Trust<Log> as __de::Message>::read(from)?,
                    })
                }
                _ => ::core::option::Option::None,
            }
        }
    }
};
