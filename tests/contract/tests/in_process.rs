//! The contract with the runtime service in this process.

use a3sbox_contract::{World, suite};

macro_rules! in_process {
    ($($subject:ident::$case:ident;)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                suite::$subject::$case(World::in_process().await).await;
            }
        )*
    };
}

a3sbox_contract::for_each_behaviour!(in_process);
