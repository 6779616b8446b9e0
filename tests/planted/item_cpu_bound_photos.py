"""Photos, blurred and cropped at random in the workers: there is one for each core, and still they are too slow."""
# planted: item-cpu-bound
# profile: --steps 40

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, count=1024, size=112):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 255, (count, size, size, 3), dtype=np.uint8)
        self.labels = rng.integers(0, 10, count)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        top, left = np.random.randint(0, 16, 2)
        image = self.images[index, top : top + 96, left : left + 96].astype(np.float64) / 255
        sigma = np.random.uniform(6.0, 12.0)
        image = gaussian_filter(image, sigma=(sigma, sigma, 0))  # <- here
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32)), int(self.labels[index])


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Photos(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(20):
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
